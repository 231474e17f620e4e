"""One NATS server, one Mosquitto and brokers of Kafka for the run; a home of its own for topologies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from front_door import FrontDoor, front_door
from kafka_mock import KafkaMock, kafka_mock
from mosquitto_server import Mosquitto, mosquitto
from nats_server import NatsServer, nats_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that stands here is of the group ``brokers``."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.brokers)


@pytest.fixture(scope="session")
def server() -> Iterator[NatsServer]:
    """A test that kills it starts it again."""
    with nats_server() as made:
        yield made


@pytest.fixture(scope="session")
def broker() -> Iterator[Mosquitto]:
    """A test that stops it starts it again."""
    with mosquitto() as made:
        yield made


@pytest.fixture(scope="session")
def brokers() -> Iterator[KafkaMock]:
    """A test that stops them lets them go on."""
    with kafka_mock() as made:
        yield made


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """One home for the tests of a file; nothing of any topology may be left at the end."""
    with front_door(tmp_path_factory.mktemp("door")) as made:
        yield made
