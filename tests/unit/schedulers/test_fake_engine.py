"""Contract of the engine, tested on the fake engine."""

from __future__ import annotations

import pytest

from heron_control.schedulers.engine import ContainerEngine
from tests.support.contracts.engine import SERVICE_LABELS, SLEEP, EngineContract, Engines
from tests.support.fake_engine import Container, FakeEngine, Machine


class TestFakeEngine(EngineContract):
    @pytest.fixture
    def engines(self) -> Engines:
        machine = Machine()
        return lambda project: FakeEngine(machine, project)

    def create_service(self, services: ContainerEngine) -> str:
        assert isinstance(services, FakeEngine)
        return services.machine.add(Container("contract-service", SERVICE_LABELS, SLEEP, {self.services_network}))
