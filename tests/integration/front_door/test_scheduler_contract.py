"""The local cluster keeps the contract of schedulers (``tests/scheduler_contract.py``)."""

from __future__ import annotations

import pytest
from process_ground import ProcessGround
from scheduler_contract import Ground, SchedulerContract


@pytest.mark.core
class TestLocal(SchedulerContract):
    too_much = "runs"

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, tmp_path_factory: pytest.TempPathFactory) -> Ground:
        return ProcessGround("local", tmp_path_factory.mktemp("contract") / "home")
