"""State store of the local cluster: in its home by default, otherwise as config.yaml defines."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_runtime.failures import Failure
from heron_runtime.state import StoreAddress, local_store
from heron_runtime.state.store import StoreError
from heron_runtime.user_home import MAX_CHARACTERS, read_config


def test_default_store_is_in_the_home(tmp_path: Path) -> None:
    wanted = StoreAddress(f"files://{tmp_path}/state")
    assert local_store(tmp_path) == wanted
    (tmp_path / "config.yaml").write_text("docker:\n  heron.state.url: zookeeper://elsewhere/x\n")
    assert local_store(tmp_path) == wanted


def test_config_yaml_sets_the_store(tmp_path: Path) -> None:
    text = "local:\n  heron.state.url: zookeeper://a:1,b:2/x\n  heron.state.credential.file: {}\n"
    (tmp_path / "config.yaml").write_text(text.format("zk"))
    assert local_store(tmp_path) == StoreAddress("zookeeper://a:1,b:2/x", f"{tmp_path}/zk")
    (tmp_path / "config.yaml").write_text(text.format("/etc/heronry/zk"))
    assert local_store(tmp_path) == StoreAddress("zookeeper://a:1,b:2/x", "/etc/heronry/zk")


@pytest.mark.parametrize("text", ["local: [", "local:\n  heron.state.url: 5\n"])
def test_unreadable_config_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(StoreError, match=r"config\.yaml"):
        local_store(tmp_path)


@pytest.mark.parametrize("text", ["#" * (MAX_CHARACTERS + 1), "[" * 100_000, "local: 2001-99-99", "local: \x00"])
def test_oversized_or_malformed_config_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(Failure, match=r"config\.yaml"):
        read_config(tmp_path)
    with pytest.raises(StoreError, match=r"config\.yaml"):
        local_store(tmp_path)
