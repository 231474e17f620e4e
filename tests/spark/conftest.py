"""Fixtures of a Spark session for the whole process, and of a standalone master and worker on demand."""

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

#: JVM options of all tests and their child processes: they live for seconds, in which optimised compilation never pays.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ[OPTIONS] = BRIEF


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield one session on two cores for every test of this process."""
    with own_session(SessionOptions("heronry-tests", "local[2]", {"spark.log.level": "FATAL"})) as found:
        yield found


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Yield a cluster ``spark://…``."""
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaMock]:
    """Yield a Kafka mock whose topic ``words`` is empty."""
    from tests.support.servers.kafka import kafka_mock  # imported here: other tests need no Kafka client

    with kafka_mock() as made:
        made.make("words")
        yield made


@pytest.fixture(scope="module")
def jetstream() -> Iterator[NatsServer]:
    """Yield a NATS server whose stream ``words`` is empty."""
    from tests.support.server_process import running_server
    from tests.support.servers.nats import NatsServer

    with running_server(NatsServer) as made:
        made.make("words")
        yield made
