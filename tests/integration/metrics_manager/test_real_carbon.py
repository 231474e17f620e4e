"""The graphite sink against a real carbon-cache: whisper files hold the values that were sent.

carbon is installed from PyPI into its own environment (it depends on Twisted). Without a network, the test reports
that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_runtime.launch import Launch
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import ProcessMetrics
from metrics_manager.collection import Collection
from metrics_manager.sinks import SinkContext
from metrics_manager.sinks.text_protocols import GraphiteSink
from tests.support.ports import free_ports

pytestmark = pytest.mark.timeout(400)
BOUND = 60.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("HERONRY_CARBON")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("carbon") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "carbon", "whisper", "six", "setuptools<81"]
    settings = {**os.environ, "GRAPHITE_NO_PREFIX": "True"}
    done = subprocess.run(install, env=settings, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"carbon cannot be installed from PyPI: {done.stderr[-300:]}")
    return folder


@pytest.fixture
def carbon(environment: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Yield the port of the plaintext protocol and the storage folder."""
    port, pickle_port, query_port = free_ports(3)
    for name in ("conf", "storage"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "storage-schemas.conf").write_text("[all]\npattern = .*\nretentions = 1s:1h\n")
    (tmp_path / "conf" / "carbon.conf").write_text(
        "[cache]\n"
        f"STORAGE_DIR = {tmp_path}/storage\nLOCAL_DATA_DIR = {tmp_path}/storage/whisper\n"
        f"CONF_DIR = {tmp_path}/conf\nLOG_DIR = {tmp_path}\nPID_DIR = {tmp_path}\n"
        f"LINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = {port}\n"
        f"PICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = {pickle_port}\n"
        f"CACHE_QUERY_INTERFACE = 127.0.0.1\nCACHE_QUERY_PORT = {query_port}\n"
        "MAX_CREATES_PER_MINUTE = inf\nENABLE_TAGS = False\n"
    )
    with open(tmp_path / "carbon.log", "wb") as log:
        process = subprocess.Popen(
            [str(environment / "bin" / "python"), str(environment / "bin" / "carbon-cache.py"), "--nodaemon",
             f"--config={tmp_path}/conf/carbon.conf", "start"],
            stdout=log, stderr=log, env={**os.environ, "GRAPHITE_ROOT": str(tmp_path)},
        )  # fmt: skip
    try:
        deadline = time.monotonic() + BOUND
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (tmp_path / "carbon.log").read_text()
            assert time.monotonic() < deadline, "carbon does not listen"
            time.sleep(0.1)
        yield port, tmp_path / "storage" / "whisper"
    finally:
        process.terminate()
        process.wait(30)


async def test_carbon_stores_the_counted_values(carbon: tuple[int, Path], environment: Path, tmp_path: Path) -> None:
    port, storage = carbon
    settings = {"heron.metrics.graphite.address": f"127.0.0.1:{port}"}
    launch = Launch("local", "ada", "default", "Words", "w-1", "", str(tmp_path), str(tmp_path), settings=settings)
    metrics = Collection()
    sink = GraphiteSink()
    await sink.open(SinkContext(launch, 1, metrics, Telemetry("__metricsmgr__", "metrics_manager-1", 1, 0, 1)))
    metrics.take(ProcessMetrics("count", "container_1_count_3", 1, 3, 7, time.time(), {"__ack-count/default": 1234.0}))
    await sink.flush()
    await sink.close()
    file = storage.joinpath("heron", "Words", "count", "container_1_count_3", "__ack-count", "default.wsp")
    read = f"import whisper; print([v for v in whisper.fetch({str(file)!r}, 0)[1] if v is not None])"
    deadline = time.monotonic() + BOUND
    while True:
        if file.exists():
            command = [str(environment / "bin" / "python"), "-c", read]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if shown.stdout.strip() == "[1234.0]":
                return
        assert time.monotonic() < deadline, (tmp_path / "carbon.log").read_text()[-2000:]
        await asyncio.sleep(0.2)
