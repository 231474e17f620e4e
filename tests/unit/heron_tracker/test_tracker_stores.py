"""Stores that a tracker follows, and their credentials."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heron_runtime.state import StoreAddress
from heron_tracker import server
from heron_tracker.__main__ import app, main
from heron_tracker.server import StartError, TrackerOptions, stores


def test_clusters_and_credentials_are_matched_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[TrackerOptions] = []
    monkeypatch.setattr(server, "serve", served.append)
    clusters = ["--cluster", "a=zookeeper://zk:2181/a", "--cluster", "b=files:///b"]
    app([*clusters, "--store-credential", f"a={tmp_path}/reader"], standalone_mode=False)
    assert stores(served[0]) == {
        "a": StoreAddress("zookeeper://zk:2181/a", f"{tmp_path}/reader"),
        "b": StoreAddress("files:///b"),
    }


def test_default_store_is_that_of_the_home(tmp_path: Path) -> None:
    assert stores(TrackerOptions(home=tmp_path)) == {"local": StoreAddress(f"files://{tmp_path}/state")}
    (tmp_path / "config.yaml").write_text(
        "local: {heron.state.url: 'zookeeper://zk:2181/x', heron.state.credential.file: zk}\n"
    )
    assert stores(TrackerOptions(home=tmp_path)) == {"local": StoreAddress("zookeeper://zk:2181/x", f"{tmp_path}/zk")}


def test_malformed_cluster_option_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["heron_tracker", "--cluster", "files:///b"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "'files:///b' is not a cluster. Write NAME=STORE_URL" in caplog.text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (TrackerOptions(clusters=(("a", "memory://"), ("a", "memory://"))), "same name"),
        (TrackerOptions(clusters=(("a", "memory://"),), credentials=(("b", "/x"),)), "unknown cluster b"),
        (TrackerOptions(credentials=(("local", "/x"),)), "config.yaml"),
    ],
)
def test_inconsistent_options_are_rejected(options: TrackerOptions, why: str) -> None:
    with pytest.raises(StartError, match=why):
        stores(options)
