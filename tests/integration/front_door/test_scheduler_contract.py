"""The local cluster keeps the contract of schedulers (``tests/support/contracts/scheduler.py``)."""

from __future__ import annotations

import pytest

from tests.support.contracts.scheduler import SchedulerContract, SchedulerUnderTest
from tests.support.process_scheduler import ProcessScheduler


@pytest.mark.core
class TestLocal(SchedulerContract):
    too_much = "runs"

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, tmp_path_factory: pytest.TempPathFactory) -> SchedulerUnderTest:
        return ProcessScheduler("local", tmp_path_factory.mktemp("contract") / "home")
