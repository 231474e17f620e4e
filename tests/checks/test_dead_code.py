"""Unused code in product, benchmarks and examples, found by vulture.

Tests do not count as callers. Names that are called from outside Python or by users are listed here with their caller.
An entry must be removed when its name is removed or has a caller.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (
    "heronry", "heron_runtime", "heron_control", "heron_cli", "topology_master", "stream_manager", "heron_instance",
    "metrics_manager", "heron_container", "heron_scheduler", "heron_tracker", "heron_apiserver", "data_pipeline",
)  # fmt: skip
#: Names ``module:name`` with the caller outside Python.
TABLES = (ROOT / "heron_runtime/extensions.py", ROOT / "heron_cli/application.py", ROOT / "pyproject.toml")
#: Classes and modules that users call; every name in them is documented API.
FOR_USERS = ("heronry/api/", "heronry/testing/", "heron_runtime/model/settings.py")
#: Cores of checkpoints and rescaling that only tests of invariants call; shells call them later (docs/roadmap.md).
BEFORE_THEIR_SHELLS = (
    "heron_control/packing/repack.py",
)  # fmt: skip
ROUTES = "@topology_route,@*.get,@*.post,@*.put,@*.delete,@*.head,@get"  # FastAPI calls them
CALLED = {
    "__getattr__": "Python: names of a package that are loaded when used",
    "__dir__": "Python",
    "dont_write_bytecode": "Python: no compiled files from here on",
    "readinto": "io.RawIOBase",
    "conn": "uvicorn: the connection of its protocol",
    "get_buffer": "asyncio.BufferedProtocol",
    "buffer_updated": "asyncio.BufferedProtocol",
    "eof_received": "asyncio.BufferedProtocol",
    "intercept_service": "grpc.aio.ServerInterceptor",
    "tempdir": "tempfile: where temporary files of this process go",
    "tracker_version": "pydantic: a field of every answer",
    "executiontime": "pydantic: a field of every answer",
    "updated": "the page: a field of streaming runs",
    "micro_batch": "the page: a field of streaming runs",
    "state_bytes": "the page: a field of streaming runs",
    "state_rows": "the page: a field of streaming runs",
    "ui": "the page: a field of streaming runs",
    "expires_at": "pydantic: a field of answers about tokens",
    "format_commands": "click: the list of commands in a help",
    "EXPLAIN": "typer: what `heron config` does if it does nothing else",
    "blocking": "threading: how a lock is taken",
    "heartbeat_age_seconds": "on the wire: the master says it to whoever asks",
    "key_group": "the law that both fast ways of hashing keys are held to",
    "transition_table": "the README of heron_container is held to it",
    "UNSUPPORTED_FIELDS": "the law that no field of a container is lost",
    "lose_connection": "tests of what happens when a store is away",
    "restore_connection": "tests of what happens when a store is away",
    "expire_session": "tests of what happens when a store is away",
    "retries": "kubernetes: how often, of its configuration",
    "connection_pool_maxsize": "kubernetes: the same",
    "streamReader": "pyspark.sql.datasource.DataSource",
    "initialOffset": "pyspark.sql.datasource.DataSourceStreamReader",
    "latestOffset": "pyspark.sql.datasource.DataSourceStreamReader",
    "check_laws": "users, in tests of their own monoids (docs/explanation/streamlet.md)",
    "CsvSink": "users (docs/reference/connectors.md)",
    "HttpSink": "users (docs/reference/connectors.md)",
    "ParquetSink": "users (docs/reference/connectors.md)",
    "PostgresSink": "users (docs/reference/connectors.md)",
    "SqlRows": "users (docs/reference/connectors.md)",
    "PostgresChanges": "users (docs/reference/connectors.md)",
    "DeltaRows": "users (docs/reference/connectors.md)",
    "DeltaSink": "users (docs/reference/connectors.md)",
    "IcebergRows": "users (docs/reference/connectors.md)",
    "IcebergSink": "users (docs/reference/connectors.md)",
    "RedisStream": "users (docs/reference/connectors.md)",
    "RedisStreamSink": "users (docs/reference/connectors.md)",
    "NatsStream": "users (docs/reference/connectors.md)",
    "KafkaSink": "users (docs/reference/connectors.md)",
    "KafkaTopics": "users (docs/reference/connectors.md)",
    "NatsSink": "users (docs/reference/connectors.md)",
    "MqttTopics": "users (docs/reference/connectors.md)",
    "post_save": "the runtime: a component's hook (heronry/api/state.py)",
    "on_connect": "paho-mqtt",
    "on_subscribe": "paho-mqtt",
    "on_disconnect": "paho-mqtt",
    "on_message": "paho-mqtt",
    "SessionExpiryInterval": "paho-mqtt",
    "ReceiveMaximum": "paho-mqtt",
}


def unused() -> dict[str, str]:
    """Return unused names with their location."""
    command = [
        sys.executable, "-m", "vulture", *PRODUCT, "benchmarks", "examples", "--exclude", "*_pb2.py",
        "--min-confidence", "60", "--ignore-decorators", ROUTES,
    ]  # fmt: skip
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode in (0, 3), said.stderr
    found = {}
    for line in said.stdout.splitlines():
        matched = re.match(r"(\S+?:\d+): unused \w+ '(\w+)'", line)
        if matched and matched[1].startswith(PRODUCT) and not matched[1].startswith((*FOR_USERS, *BEFORE_THEIR_SHELLS)):
            found[matched[2]] = line
    return found


def test_all_code_is_used() -> None:
    found = unused()
    tables = "".join(path.read_text() for path in TABLES)
    dead = [line for name, line in found.items() if name not in CALLED and not re.search(rf":{name}\b", tables)]
    assert dead == []
    assert [name for name in CALLED if name not in found] == [], "these have callers now, or are gone: take them out"
