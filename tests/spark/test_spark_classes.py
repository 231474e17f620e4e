"""The class-data archive of Spark: each JVM maps it, and JVM options of the user are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.shell import class_archive
from data_pipeline.shell.class_archive import OPTIONS, archive, mapped


def test_jvm_of_a_session_maps_the_archive(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    assert archive().is_file(), "deploy/spark-setup writes it"
    assert str(archive()) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()
    assert archive().name not in os.environ[OPTIONS], "only while the JVM is started"


def test_changed_folder_of_jars_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    first = archive()
    (tmp_path / "jars" / "more.jar").touch()
    os.utime(tmp_path / "jars", (1, 1))
    assert archive() != first


@pytest.mark.parametrize("before", [None, "-Dx=y"])
def test_user_options_come_last_and_are_restored(
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


def test_archive_path_with_a_space_is_not_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "with space.jsa"
    file.touch()
    monkeypatch.setattr(class_archive, "archive", lambda: file)
    monkeypatch.delenv(OPTIONS)
    with mapped():
        assert OPTIONS not in os.environ
