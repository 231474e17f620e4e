"""Warm Spark: the jobs it serves, and the name of its workers' code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.core import warm
from data_pipeline.core.warm import Warm, lasting, reason_against

OURS = Warm(1, 2, "token", "local[*]", {"spark.driver.memory": "2g"}, "/log", 5.0, 60.0, "v1")
parts = st.lists(st.binary(max_size=4), max_size=4)


def test_different_code_has_a_different_name() -> None:
    @given(parts, parts)
    def check(one: list[bytes], other: list[bytes]) -> None:
        assert (warm.code_name(one) == warm.code_name(other)) == (one == other)

    check()
    assert warm.code_name([b"ab", b""]) != warm.code_name([b"a", b"b"])


@pytest.mark.parametrize(
    ("master", "conf", "versions", "reason"),
    [
        ("local[*]", {}, "v1", ""),
        ("local[*]", {"spark.driver.memory": "2g"}, "v1", ""),
        ("local[*]", {"spark.sql.shuffle.partitions": "3"}, "v1", ""),
        ("local[*]", {"spark.driver.memory": "1g"}, "v1", "without spark.driver.memory=1g"),
        ("local[*]", {"spark.executor.cores": "1"}, "v1", "without spark.executor.cores=1"),
        ("local[2]", {}, "v1", "not at local[2]"),
        ("local[*]", {}, "v2", "another version"),
    ],
)
def test_warm_spark_serves_only_matching_jobs(master: str, conf: dict[str, str], versions: str, reason: str) -> None:
    found = reason_against(OURS, master, conf, versions)
    assert reason in found
    assert bool(found) == bool(reason)


def test_record_round_trips() -> None:
    assert Warm.from_json(OURS.to_json()) == OURS
    assert Warm.from_json(replace(OURS, conf={}).to_json()).conf == {}
    for text in ("", "{}", "[]", '{"pid": 1}'):
        with pytest.raises((ValueError, TypeError)):
            Warm.from_json(text)


def test_workers_get_the_environment_without_transient_variables() -> None:
    assert lasting({"PATH": "/bin", "_": "/bin/heron", "SHLVL": "2", "TOKEN": "x"}) == {"PATH": "/bin", "TOKEN": "x"}
