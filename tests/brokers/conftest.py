"""Fixtures of one NATS server, one Mosquitto and a Kafka mock for the run, and of a home for topologies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.heron_command import HeronCommand, heron_command
from tests.support.server_process import running_server
from tests.support.servers.kafka import KafkaMock, kafka_mock
from tests.support.servers.mosquitto import Mosquitto
from tests.support.servers.nats import NatsServer


@pytest.fixture(scope="session")
def server() -> Iterator[NatsServer]:
    """Yield the server; a test that kills it restarts it."""
    with running_server(NatsServer) as made:
        yield made


@pytest.fixture(scope="session")
def broker() -> Iterator[Mosquitto]:
    """Yield the broker; a test that stops it restarts it."""
    with running_server(Mosquitto) as made:
        yield made


@pytest.fixture(scope="session")
def brokers() -> Iterator[KafkaMock]:
    """Yield the brokers; a test that stops them resumes them."""
    with kafka_mock() as made:
        yield made


@pytest.fixture(scope="module")
def heron(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeronCommand]:
    """Yield a command whose home the tests of a file share; no topology process may be left at the end."""
    with heron_command(tmp_path_factory.mktemp("home")) as made:
        yield made
