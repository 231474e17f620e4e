"""Where the state store is and how it is opened: credential files, URLs, and the store of the local cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from heron_runtime.failures import Failure
from heron_runtime.launch import Launch
from heron_runtime.state import StoreAddress, local_store, open_store, store_of
from heron_runtime.state.credential import MAX_BYTES, MAX_PEM_BYTES, StoreCredential, read_credential
from heron_runtime.state.store import StoreError
from heron_runtime.user_home import MAX_CHARACTERS, read_config

SECRET = "correct-horse"


def write(folder: Path, text: str, mode: int = 0o400) -> Path:
    file = folder / "credential"
    file.write_text(text)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"cluster: heronry:{SECRET}\n", StoreCredential(f"heronry:{SECRET}")),
        ("# ours\n\n cluster:heronry:a:b \nreader: ui:c\n", StoreCredential("heronry:a:b", "ui:c")),
        ("reader: ui:c", StoreCredential(reader="ui:c")),
    ],
)
def test_credential_file_is_parsed(tmp_path: Path, text: str, wanted: StoreCredential) -> None:
    found = read_credential(write(tmp_path, text))
    assert found == wanted
    assert found.read_only == (not found.cluster)
    assert found.own == (found.cluster or found.reader)


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", SECRET, f"heronry:{SECRET}", "cluster: heronry:", f"cluster: :{SECRET}",
     f"cluster: a:{SECRET}\ncluster: b:{SECRET}", f"writer: a:{SECRET}", f"cluster: a:{SECRET}\n" + "#" * MAX_BYTES,
     f"cluster: a:{SECRET}\nca: eA==\nca: eA==", f"cluster: a:{SECRET}\nca:"],
)  # fmt: skip
def test_malformed_credential_is_rejected_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(StoreError, match="cluster: heronry:PASSWORD") as caught:
        read_credential(write(tmp_path, text))
    assert SECRET not in str(caught.value)


def test_tls_files_are_embedded_in_the_credential_of_a_topology(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("authorities\nof ours\n")
    (tmp_path / "client.pem").write_text(f"a key: {SECRET}")
    file = write(tmp_path, f"cluster: a:{SECRET}\nca-file: x.pem\nclient-file: {tmp_path}/client.pem")
    operators = read_credential(file)
    assert (operators.authorities, operators.certificate) == ("authorities\nof ours\n", f"a key: {SECRET}")
    assert SECRET not in repr(operators)
    file.unlink()
    drawn = operators.draw_for("words-1")
    assert read_credential(write(tmp_path, drawn.to_text())) == drawn
    assert (drawn.authorities, drawn.certificate) == (operators.authorities, operators.certificate)
    assert drawn.known_by(replace(operators, authorities="others")).authorities == "others"


def test_invalid_tls_files_are_rejected(tmp_path: Path) -> None:
    for contents, said in (
        (b"x" * (MAX_PEM_BYTES + 1), "leave in it what is needed"),
        (b"\xff", "not in PEM format"),
    ):
        (tmp_path / "x.pem").write_bytes(contents)
        with pytest.raises(StoreError, match=said):
            read_credential(write(tmp_path, f"cluster: a:{SECRET}\nca-file: x.pem"))
        (tmp_path / "credential").unlink()
    (tmp_path / "x.pem").unlink()
    with pytest.raises(StoreError, match=r"names x\.pem, which cannot be read: No such file"):
        read_credential(write(tmp_path, f"cluster: a:{SECRET}\nca-file: x.pem"))


def test_file_readable_by_others_is_rejected(tmp_path: Path) -> None:
    for mode in (0o440, 0o404, 0o620):
        with pytest.raises(StoreError, match="chmod 0400"):
            read_credential(write(tmp_path, f"cluster: a:{SECRET}", mode))
        (tmp_path / "credential").chmod(0o600)


def test_unreadable_credential_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        read_credential(tmp_path / "missing")
    with pytest.raises(StoreError, match=r"is not a file|Is a directory"):
        read_credential(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    os.chmod(tmp_path / "binary", 0o400)
    with pytest.raises(StoreError, match="is not UTF-8 text"):
        read_credential(tmp_path / "binary")


def test_repr_shows_users_only() -> None:
    shown = repr(StoreCredential(f"heronry:{SECRET}", f"ui:{SECRET}"))
    assert "heronry" in shown
    assert SECRET not in shown


def test_stores_without_credentials_reject_one(tmp_path: Path) -> None:
    file = write(tmp_path, f"cluster: a:{SECRET}")
    for url in (f"files://{tmp_path}/state", "memory://"):
        with pytest.raises(StoreError, match="does not use a credential"):
            open_store(url, credential_file=file)


def test_launch_file_names_the_credential_file_only(tmp_path: Path) -> None:
    file = write(tmp_path, f"cluster: heronry:{SECRET}")
    launch = Launch("docker", "me", "default", "words", "words-1", "zookeeper://zk:2181/heronry", "/topology", "/run/x",
                    store_credential=str(file))  # fmt: skip
    launch.save(tmp_path / "launch.json")
    assert SECRET not in (tmp_path / "launch.json").read_text()
    loaded = Launch.load(tmp_path / "launch.json")
    assert loaded == launch
    assert SECRET not in repr(loaded)
    file.unlink()
    with pytest.raises(StoreError, match="credential of the state store cannot be read"):
        store_of(loaded)


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("zookeeper:///heronry", "names no ZooKeeper servers"),
        ("zookeeper+tls:///heronry", "names no ZooKeeper servers"),
        ("zookeeper://host:port/heronry", "names no ZooKeeper servers"),
        ("zookeeper://a:b@host:2181/heronry", "must not contain a user or password"),
        ("zookeeper://host:2181/a//b", "invalid root"),
        ("zookeeper://host:2181/zookeeper/x", "invalid root"),
        ("zookeeper://host:2181/a/../b", "invalid root"),
    ],
)
def test_invalid_zookeeper_urls_are_rejected(url: str, cure: str) -> None:
    with pytest.raises(StoreError, match=cure):
        open_store(url)


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
