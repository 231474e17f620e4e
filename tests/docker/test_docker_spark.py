"""The cluster's own Spark (profile ``spark``): programs in batch and by micro-batches, as in the guide, and its secret.

Its image has Java and Spark and takes minutes to build, so this runs with the whole table (``HERONRY_FAULTS=all``)
only.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.clusters.compose import ROOT, TAG, ComposeCluster, docker, run
from tests.support.ports import free_port

TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"
PROGRAM = "/data/examples/streamlet_word_count.py"
MASTER = ("--master", "spark://spark-master:7077")

pytestmark = pytest.mark.skipif(os.environ.get("HERONRY_FAULTS") != "all", reason="part of make test-docker")


@pytest.fixture
def sparks() -> Iterator[ComposeCluster]:
    """Yield a cluster with Spark."""
    made = ComposeCluster("--profile", "spark")
    made.environment["HERONRY_SPARK_PORT"] = str(free_port())
    try:
        made.up()
        made.lap("the cluster is up")
        yield made
        made.down()
    finally:
        made.close()


def inside(sparks: ComposeCluster, *command: str, check: bool = True) -> str:
    """Run a command in the container of Spark's master, where drivers run."""
    return sparks.compose("exec", "-T", "spark-master", *command, check=check)


def counted(sparks: ComposeCluster, place: str) -> dict[str, int]:
    """Return the counts that a run has written."""
    lines = inside(sparks, "sh", "-c", f"cat {place}/output/*.json").splitlines()
    rows = [json.loads(line) for line in lines]
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows), "each word once"
    return found


def true_counts(*texts: str) -> dict[str, int]:
    """Return the word counts of the texts, split as by the program's reader."""
    return dict(Counter(word for text in texts for word in re.findall(r"[a-z']+", text.lower())))


def test_program_runs_in_batch_and_by_micro_batches_when_a_worker_dies(sparks: ComposeCluster) -> None:
    text = TEXT.read_text()
    run("docker", "compose", "cp", "examples", "spark-master:/data/", env=sparks.environment)
    inside(sparks, "heron", "submit", "spark", PROGRAM, "words", *MASTER, "--output-path", "/data/batch", "--",
           f"/data/examples/data/{TEXT.name}")  # fmt: skip
    sparks.lap("the batch is done")
    assert counted(sparks, "/data/batch") == true_counts(text)

    streaming = ("heron", "submit", "spark", PROGRAM, "words", "--mode", "streaming", "--checkpoint", "/data/mark",
                 *MASTER, "--output-path", "/data/streamed", "--", "/data/in")  # fmt: skip
    inside(sparks, "sh", "-c", f"mkdir /data/in && cp /data/examples/data/{TEXT.name} /data/in")
    inside(sparks, *streaming)
    sparks.lap("the first lot is streamed")
    assert counted(sparks, "/data/streamed") == true_counts(text)

    sparks.compose("kill", "--signal", "KILL", "spark-worker")
    inside(sparks, "sh", "-c", "echo 'A word more, and Heronry' > /data/in/more.txt")
    sparks.compose("up", "--detach", "--wait", "spark-worker")
    inside(sparks, *streaming)
    sparks.lap("and the second, by a worker that came back")
    assert counted(sparks, "/data/streamed") == true_counts(text, "A word more, and Heronry")


def jobs_of_master(sparks: ComposeCluster) -> list[str]:
    """Return the names of all jobs that Spark's master has accepted."""
    port = sparks.environment["HERONRY_SPARK_PORT"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=10) as answer:
        state = json.loads(answer.read())
    return [job["name"] for job in state["activeapps"] + state["completedapps"]]


def submit_from_container(sparks: ComposeCluster, place: str, *options: str) -> int:
    """Run a job from a container of its own on Spark's network; return its exit code."""
    container = (
        "run", "--rm", "--network", f"{sparks.project}_spark", "--volume", f"{sparks.project}_spark:/data",
        "--tmpfs", "/var/lib/heronry:uid=10001,gid=10001", *options, f"heronry-spark:{TAG}",
    )  # fmt: skip
    job = ("heron", "submit", "spark", PROGRAM, "words", *MASTER, "--output-path", place, "--")
    return run("docker", *container, *job, f"/data/examples/data/{TEXT.name}", check=False).returncode


def test_master_accepts_only_jobs_with_the_secret(sparks: ComposeCluster) -> None:
    run("docker", "compose", "cp", "examples", "spark-master:/data/", env=sparks.environment)
    file = "/srv/spark/spark-defaults.conf"
    assert inside(sparks, "stat", "--format", "%a %U", file) == "400 heronry"
    secret = inside(sparks, "sed", "-n", "s/^spark.authenticate.secret *//p", file)
    assert re.fullmatch("[0-9a-f]{48}", secret)
    assert secret not in docker("inspect", *sparks.service("spark-master"), *sparks.service("spark-worker"))

    assert submit_from_container(sparks, "/data/refused") == 1
    assert jobs_of_master(sparks) == []
    with_secret = ("--volume", f"{sparks.project}_spark-secret:/srv/spark:ro")
    assert submit_from_container(sparks, "/data/accepted", *with_secret) == 0
    assert jobs_of_master(sparks) == ["words"]
    assert counted(sparks, "/data/accepted") == true_counts(TEXT.read_text())
