"""One NATS server, one Mosquitto and brokers of Kafka for the run; a home of its own for topologies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from front_door import FrontDoor, front_door
from kafka_mock import KafkaMock, kafka_mock
from mosquitto_server import Mosquitto
from nats_server import NatsServer
from one_server import serving


@pytest.fixture(scope="session")
def server() -> Iterator[NatsServer]:
    """A test that kills it starts it again."""
    with serving(NatsServer) as made:
        yield made


@pytest.fixture(scope="session")
def broker() -> Iterator[Mosquitto]:
    """A test that stops it starts it again."""
    with serving(Mosquitto) as made:
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
