"""Contract of the engine, tested on the fake engine."""

from __future__ import annotations

import pytest

from tests.support.contracts.engine import EngineContract, Engines
from tests.support.fake_engine import FakeEngine, Machine


class TestFakeEngine(EngineContract):
    @pytest.fixture
    def engines(self) -> Engines:
        machine = Machine()
        return lambda project: FakeEngine(machine, project)
