"""Replicas built from the changes of a real replication slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.postgres import changes_story as story
from tests.support.servers.postgres import PostgresServer

DEAR = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def ground(server: PostgresServer) -> Iterator[story.Ground]:
    """Yield a server for all stories."""
    with story.ground(server) as made:
        yield made


@DEAR
@given(told=story.stories)
def test_replica_equals_the_table_after_each_transaction(ground: story.Ground, told: Any) -> None:
    story.check(ground, told)
