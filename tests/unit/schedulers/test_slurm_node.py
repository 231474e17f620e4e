"""Runs of a Slurm job and the processes that belong to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heron_control.schedulers.slurm_node import RUN, RUN_FILE, is_replaced, read_nodes, write_nodes
from heron_runtime.launch import Launch

LAUNCH = Launch("slurm", "ads", "prod", "words", "words-0123", "files:///srv/x", "", "")


def test_run_is_replaced_only_once_another_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = replace(LAUNCH, home=str(tmp_path))
    monkeypatch.setenv(RUN, "n1-7-1")
    assert not is_replaced(launch), "the folder does not say"
    (tmp_path / RUN_FILE).write_text("n1-7-1")
    assert not is_replaced(launch)
    (tmp_path / RUN_FILE).write_text("n2-9-2")
    assert is_replaced(launch)
    monkeypatch.delenv(RUN)
    assert not is_replaced(launch), "what runs in no job belongs to none"


def test_nodes_of_a_job_are_read_back(tmp_path: Path) -> None:
    write_nodes(tmp_path, {"n1": "10.0.0.1", "n2": "n2.site"})
    assert read_nodes(tmp_path) == {"n1": "10.0.0.1", "n2": "n2.site"}
