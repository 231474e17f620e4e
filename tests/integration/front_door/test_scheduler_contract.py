"""Scheduler contract (``tests/support/contracts/scheduler.py``) for the local cluster."""

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
