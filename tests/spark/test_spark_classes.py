"""The archive of Spark's classes is mapped by each JVM of ours, and what the user gives to the JVM is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.shell import class_archive
from data_pipeline.shell.class_archive import OPTIONS, archive, mapped


def test_the_jvm_of_a_session_maps_it(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    assert archive().is_file(), "deploy/spark-setup writes it"
    assert str(archive()) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()
    assert archive().name not in os.environ[OPTIONS], "only while the JVM is started"


def test_a_folder_of_jars_that_has_changed_has_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    first = archive()
    (tmp_path / "jars" / "more.jar").touch()
    os.utime(tmp_path / "jars", (1, 1))
    assert archive() != first


@pytest.mark.parametrize("before", [None, "-Dx=y"])
def test_options_of_the_user_come_last_and_stay(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.jsa"
    monkeypatch.setattr(class_archive, "archive", lambda: file)
    monkeypatch.delenv(OPTIONS)
    if before is not None:
        monkeypatch.setenv(OPTIONS, before)
    with mapped():
        assert os.environ.get(OPTIONS) == before, "there is none"
    file.touch()
    with mapped():
        words = os.environ[OPTIONS].split()
        assert f"-XX:SharedArchiveFile={file}" in words
        assert words[-1] == (before or words[-1])
    assert os.environ.get(OPTIONS) == before


def test_a_path_that_spark_would_split_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "with space.jsa"
    file.touch()
    monkeypatch.setattr(class_archive, "archive", lambda: file)
    monkeypatch.delenv(OPTIONS)
    with mapped():
        assert OPTIONS not in os.environ
