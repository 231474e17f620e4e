"""Cluster addresses, and the home and runtime folders of a user."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heron_cli import home
from heron_cli.application import make_app
from heron_cli.clusters import ClusterAddress, parse_cluster_address
from heron_cli.home import Home
from heron_control.schedulers.runtime import SOCKET_PATH_BYTES, make_runtime_dir, runtime_base, runtime_dir
from heron_control.submission.named_checkpoints import NamedCheckpoints
from heron_runtime.failures import Failure, NotAllowed, UsageError
from heronry.pipeline.registry import views_folder


def test_cluster_address_is_parsed() -> None:
    assert parse_cluster_address("local") == ClusterAddress("local")
    assert str(parse_cluster_address("local/ads/prod")) == "local/ads/prod"
    assert parse_cluster_address("local/ads").environ == "default"
    assert parse_cluster_address("local").role
    assert parse_cluster_address("local").covers("anybody", "anywhere")
    assert not parse_cluster_address("local/ads").covers("other", "default")
    for bad in ("", "local/", "/x", "a/b/c/d", "local/../x", "lo cal", "local/a\n"):
        with pytest.raises(UsageError):
            parse_cluster_address(bad)


def test_home_is_private(tmp_path: Path) -> None:
    made = Home(tmp_path / "h")
    made.prepare()
    assert stat.S_IMODE(made.root.stat().st_mode) == 0o700
    made.root.chmod(0o755)
    made.prepare()
    assert stat.S_IMODE(made.root.stat().st_mode) == 0o700


def test_folder_with_other_files_is_not_used_as_home(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").write_text("")
    with pytest.raises(Failure, match=r"letter\.txt"):
        Home(tmp_path).prepare()


def test_home_that_holds_only_views_is_accepted(tmp_path: Path) -> None:
    views_folder(tmp_path).mkdir(parents=True)
    tmp_path.chmod(0o755)
    Home(tmp_path).prepare()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_home_that_holds_only_named_checkpoints_is_accepted(tmp_path: Path) -> None:
    NamedCheckpoints(tmp_path, "local").place("ads", "prod", "words", "before").mkdir(parents=True)
    tmp_path.chmod(0o755)
    Home(tmp_path).prepare()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_file_in_place_of_the_home_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("")
    for root in (tmp_path / "h", tmp_path / "h" / "below"):
        with pytest.raises(Failure, match="not a folder"):
            Home(root).prepare()


def test_config_round_trips_and_is_private(tmp_path: Path) -> None:
    made = Home(tmp_path / "h")
    assert made.read_config() == {}
    made.write_config({"local": {"heron.metrics.interval.secs": 2.0}, "empty": {}})
    assert made.read_config() == {"local": {"heron.metrics.interval.secs": 2.0}}
    assert stat.S_IMODE(made.config_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["local: [1", "- a", "local: 5"])
def test_broken_config_names_its_file(tmp_path: Path, text: str) -> None:
    made = Home(tmp_path)
    made.config_file.write_text(text)
    with pytest.raises(Failure, match=r"config\.yaml"):
        made.read_config()


def test_runtime_folder_is_short_private_and_new_for_each_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if len(str(tmp_path)) < 60:
        assert runtime_base() == tmp_path / "heronry"
    folder = runtime_dir("words-abc")
    assert folder != runtime_dir("words-abd")
    assert len(str(folder / "sm4096.sock")) <= SOCKET_PATH_BYTES
    make_runtime_dir(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_long_runtime_base_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert str(runtime_base()).startswith("/tmp/heronry-")


def test_runtime_folder_open_to_others_is_rejected(tmp_path: Path) -> None:
    base = tmp_path / "heronry"
    base.mkdir(mode=0o755)
    base.chmod(0o755)
    with pytest.raises(NotAllowed):
        make_runtime_dir(base / "12345678")
    link = tmp_path / "heronry-link"
    link.symlink_to(tmp_path)
    with pytest.raises(NotAllowed):
        make_runtime_dir(link / "12345678")


def test_full_disk_is_reported_before_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Home(tmp_path).prepare(for_topology=True)
    monkeypatch.setattr(home, "SPACE_NEEDED_BYTES", 1 << 60)  # more than any disk has
    with pytest.raises(Failure, match="is full"):
        Home(tmp_path).prepare(for_topology=True)


def test_state_store_setting_belongs_to_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERONRY_HOME", str(tmp_path))
    url, key = "zookeeper://zk:2181/x", "heron.state.url"
    assert CliRunner().invoke(make_app(), ["config", "local", "set", key, url]).exit_code == 0
    assert Home.of_user().state_store("local").url == url
    file = tmp_path / "words.py"
    file.write_text("")
    refused = CliRunner().invoke(make_app(), ["submit", "local", str(file), "--config-property", f"{key}={url}"])
    assert refused.exit_code == 2
    assert "whole cluster" in refused.output
