"""Real Spark for the tests: one session for the whole process, and a standalone master and worker where asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: deploy/spark-setup")

from pyspark.sql import SparkSession

from data_pipeline.shell.class_archive import OPTIONS
from data_pipeline.shell.session import SessionOptions, own_session
from tests.support.servers.spark import Standalone

if TYPE_CHECKING:
    from tests.support.servers.kafka import KafkaMock
    from tests.support.servers.nats import NatsServer

#: For the JVMs of all tests, and of what they start: these live for seconds, in which thorough compiling never pays.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ[OPTIONS] = BRIEF


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session on two cores for every test that runs in this process."""
    with own_session(SessionOptions("heronry-tests", "local[2]", {"spark.log.level": "FATAL"})) as found:
        yield found


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """The cluster ``spark://…``."""
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaMock]:
    """Their topic ``words`` is empty."""
    from tests.support.servers.kafka import kafka_mock  # here: who tests no server needs none of the clients

    with kafka_mock() as made:
        made.make("words")
        yield made


@pytest.fixture(scope="module")
def jetstream() -> Iterator[NatsServer]:
    """Its stream ``words`` is empty."""
    from tests.support.server_process import running_server
    from tests.support.servers.nats import NatsServer

    with running_server(NatsServer) as made:
        made.make("words")
        yield made
