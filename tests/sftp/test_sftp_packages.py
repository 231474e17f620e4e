"""Packages on a real SFTP server: the store contract, an unknown host key, and an API server without its store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from heron_apiserver.package_store import PackageStore, PackageStoreError, RemotePackageStore, load_package_location
from heron_control.packaging.shipping import pack_package
from heron_runtime.model.topology import ComponentKind, ComponentSpec, StreamSchema, TopologyDefinition
from heron_runtime.wire import message_codecs
from tests.support.api_server_process import TOPOLOGIES, ApiProcess, api_server
from tests.support.contracts.package_store import CONTRACT, PackageStoreUnderTest
from tests.support.servers.sftp import SftpServer
from tests.support.waiting import wait_until

FIELDS = {"name": "words", "cluster": "box", "role": "ads", "environment": "prod"}


@pytest.mark.parametrize("law", CONTRACT, ids=lambda law: law.__name__)
def test_store_contract(server: SftpServer, tmp_path: Path, law: Callable[[PackageStoreUnderTest], None]) -> None:
    place = load_package_location(server.url, str(server.options))
    folder = server.kept / law.__name__
    folder.mkdir()

    def make(name: str) -> PackageStore:
        return RemotePackageStore(place, law.__name__, tmp_path / name)

    law(PackageStoreUnderTest(make("home"), lambda: make("other"), folder, tmp_path))


def test_host_with_another_key_is_refused(server: SftpServer, tmp_path: Path) -> None:
    place = load_package_location(server.url, str(server.options_with("stranger")))
    with pytest.raises(PackageStoreError, match=r"127\.0\.0\.1:\d+/.* failed: .*[Hh]ost key"):
        RemotePackageStore(place, "stranger", tmp_path / "copies").has("a" * 64)


def test_server_that_hangs_times_out(server: SftpServer, tmp_path: Path) -> None:
    store = RemotePackageStore(
        load_package_location(server.url, str(server.options)), "hangs", tmp_path / "copies", look_seconds=2.0
    )
    server.hang()
    try:
        with pytest.raises(PackageStoreError, match="does not answer within 2 s"):
            store.has("a" * 64)
    finally:
        server.go_on()


def submit(api: ApiProcess, package: bytes) -> httpx.Response:
    """Submit a package as a client does."""
    spout = ComponentSpec("word", ComponentKind.SPOUT, "words:Word", 1, (StreamSchema(fields=("word",)),))
    definition = message_codecs.TOPOLOGY.encode(TopologyDefinition("words", "words-1", (spout,)))
    files = {"definition": ("d", definition), "topology": ("t", package)}
    return api.request("POST", TOPOLOGIES, data=FIELDS, files=files)


def test_api_server_survives_an_outage_of_its_package_store(server: SftpServer, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "words.py").write_text("x = 1\n")
    digest = pack_package(tmp_path / "code", tmp_path / "sent")
    package, path = (tmp_path / "sent").read_bytes(), f"/api/v1/packages/{digest}"
    arguments = ("--cluster", "box", "--packages", server.url, "--packages-options", str(server.options))
    home = tmp_path / "home"
    with api_server(home, *arguments) as api:
        space = server.kept / (home / "home-id").read_text()
        server.kill()
        refused = submit(api, package)
        assert refused.status_code == 503, refused.text
        assert f"the store of packages sftp://127.0.0.1:{server.port}" in refused.json()["message"]
        assert "--packages-options" in refused.json()["cure"]
        assert list((home / "uploads").iterdir()) == list((home / "copies").iterdir()) == []
        assert list((home / "topologies").glob("*/*/*/*")) == []
        server.start()
        assert submit(api, package).status_code == 201
        assert [p.name for p in space.iterdir()] == [f"{digest}.tar.gz"]
        assert list((home / "packages").glob("*")) == []
    with api_server(home, *arguments) as api:
        assert list((home / "copies").iterdir()) == [], "nothing is left of an earlier life: it comes from the store"
        server.kill()
        away = api.request("GET", path)
        assert away.status_code == 503
        server.start()
        assert api.request("HEAD", path).status_code == 200
        assert api.request("GET", path).content == package
        shutil.rmtree(home / "copies")
        server.kill()  # the kill of a topology does not wait for its package
        assert api.request("DELETE", f"{TOPOLOGIES}/box/ads/prod/words").status_code == 200
        assert space.joinpath(f"{digest}.tar.gz").exists()
        server.start()
    with api_server(home, *arguments) as api:
        wait_until(lambda: list(space.iterdir()) == [])  # unneeded packages are removed at the start
        log = api.log.read_text()
        assert f"packages are stored in sftp://127.0.0.1:{server.port}/" in log
        assert "@127.0.0.1" not in log
        assert api.request("HEAD", path).status_code == 404
