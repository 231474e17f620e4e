"""Hostile and malformed requests to an API server are refused with a message and leave nothing behind."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from heron_runtime.model.topology import ComponentKind, ComponentSpec, StreamSchema, TopologyDefinition
from heron_runtime.wire import message_codecs
from tests.support.api_server_process import TOPOLOGIES, ApiProcess, api_server
from tests.support.waiting import wait_until

PLACE = f"{TOPOLOGIES}/box/ads/prod/words"
FIELDS = {"name": "words", "cluster": "box", "role": "ads", "environment": "prod"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    home = tmp_path_factory.mktemp("abuse") / "api"
    bounds = ("--max-package-mb", "1", "--max-unpacked-mb", "64", "--idle-seconds", "1")
    with api_server(home, "--cluster", "box", *bounds) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_is_left(api: ApiProcess) -> Iterator[None]:
    before = api.files()
    yield
    wait_until(lambda: api.files() == before)
    assert api.request("GET", TOPOLOGIES).json() == []


def definition(**change: Any) -> bytes:
    spout = ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 1, (StreamSchema(fields=("word",)),))
    made = {"name": "words", "id": "words-1", "components": (spout,), **change}
    return message_codecs.TOPOLOGY.encode(TopologyDefinition(**made))


def tar(name: str = "m.py", content: bytes = b"x = 1\n", kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        entry.size = len(content) if kind == tarfile.REGTYPE else 0
        archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def submit(api: ApiProcess, fields: dict[str, str] | None = None, **files: bytes) -> tuple[int, dict[str, Any]]:
    sent = {"definition": definition(), "topology": tar(), **files}
    answer = api.request(
        "POST", TOPOLOGIES, data={**FIELDS, **(fields or {})}, files={k: (k, v) for k, v in sent.items() if v != b"-"}
    )
    return answer.status_code, answer.json()


CHANGES = [
    ("POST", TOPOLOGIES), ("DELETE", PLACE), ("POST", f"{PLACE}/activate"), ("POST", f"{PLACE}/deactivate"),
    ("POST", f"{PLACE}/restart"), ("POST", f"{PLACE}/checkpoint"), ("POST", f"{PLACE}/restore"),
    ("POST", f"{PLACE}/update"), ("POST", f"{PLACE}/drain"), ("POST", f"{PLACE}/rollback"),
    ("DELETE", f"{PLACE}/checkpoints/name"),
]  # fmt: skip
LOOKS = [
    ("GET", TOPOLOGIES), ("GET", f"{PLACE}/status"), ("GET", f"{PLACE}/metrics"), ("GET", f"{PLACE}/logs"),
    ("GET", f"{PLACE}/containers/1/file?path=a.log"), ("GET", "/api/v1/whoami"), ("GET", f"{PLACE}/checkpoints"),
    ("GET", f"{PLACE}/checkpoints/1"),
]  # fmt: skip
TOKENS = [("GET", "/api/v1/tokens"), ("POST", "/api/v1/tokens"), ("DELETE", "/api/v1/tokens/read")]
CODE = [("GET", f"/api/v1/packages/{'a' * 64}"), ("HEAD", f"/api/v1/packages/{'a' * 64}")]


def test_the_list_of_paths_is_complete(api: ApiProcess) -> None:
    """Fails for a path that is added without a right."""
    paths = api.request("GET", "/openapi.json", token="").json()["paths"]
    known = {(m.upper(), p) for p, methods in paths.items() for m in methods}
    free = {("GET", p) for p in ("/api/v1/version", "/healthz", "/readyz", "/leader", "/metrics")}
    assert len(known - free) == len(CHANGES + LOOKS + TOKENS + CODE)


@pytest.mark.parametrize(("method", "path"), CHANGES + LOOKS + TOKENS + CODE)
@pytest.mark.parametrize("token", ["", "wrong", "Ünicode", "a" * 10_000])
def test_requests_without_a_valid_token_are_401(api: ApiProcess, method: str, path: str, token: str) -> None:
    headers = {"authorization": f"Bearer {token}".encode()} if token else {}
    answer = api.request(method, path, token="", headers=headers)
    assert answer.status_code in (401, 429)
    if method != "HEAD":
        assert "token" in answer.json()["message"]
    assert api.request("GET", "/api/v1/whoami").json()["role"] == "admin"  # valid tokens are never throttled


@pytest.mark.parametrize(("method", "path"), CHANGES + LOOKS + TOKENS + CODE)
def test_token_is_checked_before_the_body(api: ApiProcess, method: str, path: str) -> None:
    """The body is garbage and incomplete; the refusal comes at once, and nothing is parsed."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 60000\r\n\r\n--x\r\n\r\n--y"
    )
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096)[:12] in (b"HTTP/1.1 401", b"HTTP/1.1 429")


def test_repeated_refusals_are_summarised_in_the_audit_file(api: ApiProcess) -> None:
    """A thousand refusals write as many lines as ten."""
    before = len(api.audit())
    with httpx.Client(timeout=60, trust_env=False) as client:
        for _ in range(300):
            files = {"x": ("y", b"garbage")}
            assert client.post(f"{api.url}{PLACE}/restart", files=files).status_code in (401, 429)
    assert len(api.audit()) - before <= 8


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "A: b\nC: d\r\n", "A: b\r\n C: d\r\n",
        "Transfer-Encoding:\r\n\tchunked\r\n", "Content-Length : 5\r\n", "Content-Length: +5\r\n",
    ],
)  # fmt: skip
def test_ambiguous_request_heads_are_400(api: ApiProcess, lines: str) -> None:
    body = "0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(f"POST {TOPOLOGIES} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n{body}".encode())
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(4096):
                answer += chunk
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(("method", "path"), CHANGES + TOKENS + CODE)
def test_reader_token_changes_nothing(api: ApiProcess, method: str, path: str) -> None:
    assert api.request(method, path, token=api.reader).status_code == 403


def test_tokens_count_in_one_header_only(api: ApiProcess) -> None:
    for path in (f"{TOPOLOGIES}?token={api.admin}", f"{TOPOLOGIES}?access_token={api.admin}"):
        assert api.request("GET", path, token="").status_code in (401, 429)
    for headers in ({"X-User": "admin"}, {"Cookie": f"token={api.admin}"}, {"X-Forwarded-User": "root"}):
        assert api.request("GET", TOPOLOGIES, token="", headers=headers).status_code in (401, 429)
    twice = {"Authorization": "Bearer wrong", "authorization": f"Bearer {api.admin}"}
    assert api.raw("GET", TOPOLOGIES, twice) in (401, 429)


def test_topology_header_alone_gives_no_right(api: ApiProcess) -> None:
    headers = {"heronry-topology": "words-1"}
    assert api.request("GET", CODE[0][1], token="0" * 64, headers=headers).status_code in (401, 429)


def test_foreign_origins_and_host_names_are_refused(api: ApiProcess) -> None:
    assert api.raw("GET", TOPOLOGIES, {"Host": "evil.example"}) == 421
    assert api.raw("GET", TOPOLOGIES, {"Origin": "http://evil.example"}) == 403
    answer = api.request("GET", TOPOLOGIES)
    assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "digest",
    ["../../admin-token", "..%2f..%2fadmin-token", "%2e%2e%2fadmin-token", "a" * 63, "A" * 64, "a" * 64 + "%00"],
)
def test_invalid_package_digests_are_rejected(api: ApiProcess, digest: str) -> None:
    assert api.raw("GET", f"/api/v1/packages/{digest}") in (404, 422)


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "a%2fb", "a%00b", "a%0ab", "$(reboot)", "x" * 200, "..%2f..%2fstate", "a\\b"]
)
def test_invalid_names_in_paths_are_rejected(api: ApiProcess, name: str) -> None:
    for method, tail in (("DELETE", ""), ("GET", "/status")):
        for path in (f"{TOPOLOGIES}/box/ads/prod/{name}{tail}", f"{TOPOLOGIES}/box/{name}/prod/words{tail}"):
            assert api.raw(method, path) in (404, 405, 422)


@pytest.mark.parametrize(
    "change",
    [{"name": "../../x"}, {"settings": '{"heron.scheduler": "x"}'}, {"package": "../../admin-token"}, {"name": ""}],
)
def test_invalid_submit_fields_are_422(api: ApiProcess, change: dict[str, str]) -> None:
    code, answer = submit(api, change)
    assert code == 422
    assert answer["details"]


def test_missing_submit_fields_are_named(api: ApiProcess) -> None:
    code, answer = submit(api, {"name": ""}, topology=b"-")
    assert (code, answer["missing"]) == (422, ["name", "topology"])
    assert submit(api, {"package": "a" * 64}, topology=b"-")[0] == 404  # unknown package
    assert submit(api, {"package": "../../admin-token"}, topology=b"-")[0] == 404


BAD_DEFINITIONS: dict[str, bytes] = {
    "garbage": b"\xff" * 100,
    "pickle": b"\x80\x04cos\nsystem\n(S'touch /tmp/pwned'\ntR.",
    "empty": b"",
    "unknown field": definition() + b"\xfa\x3f\x01x",
    "length beyond the end": b"\x0a\xff\xff\xff\xff\x07abc",
    "nested without end": definition(config={"user.deep": json.loads("[" * 400 + "]" * 400)}),
    "deep bytes": b"\x1a\x7f" * 5000,
}


@pytest.mark.parametrize("what", BAD_DEFINITIONS)
def test_invalid_definitions_are_422(api: ApiProcess, what: str) -> None:
    code, answer = submit(api, definition=BAD_DEFINITIONS[what])
    assert code == 422, answer
    assert answer["message"]


BAD_PACKAGES: dict[str, bytes] = {
    "leaves by dots": tar("../../../tmp/evil.py"),
    "symbolic link": tar("link", kind=tarfile.SYMTYPE, target="/etc/passwd"),
    "garbage": b"\x1f\x8b" + b"\0" * 100,
    "cut off": tar(content=bytes(100_000))[:60],
    "empty": b"",
}


@pytest.mark.parametrize("what", BAD_PACKAGES)
def test_unsafe_packages_are_422(api: ApiProcess, what: str) -> None:
    code, answer = submit(api, topology=BAD_PACKAGES[what])
    assert code == 422, answer


def test_decompression_bomb_is_422(api: ApiProcess) -> None:
    bomb = tar(content=bytes(256 << 20))
    assert len(bomb) < 1 << 20  # small enough to send
    code, answer = submit(api, topology=bomb)
    assert (code, "67108864 bytes" in answer["message"]) == (422, True)


def test_large_bodies_are_413(api: ApiProcess) -> None:
    code, answer = submit(api, topology=b"x" * ((1 << 20) + 1))
    assert (code, "1048576" in answer["message"]) == (413, True)
    assert submit(api, definition=b"x" * ((4 << 20) + 1))[0] == 413
    assert submit(api, {"settings": "x" * 70_000})[0] == 413
    announced = {"Content-Length": str(1 << 40), "Content-Type": "multipart/form-data; boundary=x"}
    assert api.raw("POST", TOPOLOGIES, announced) == 413
    assert api.request("POST", f"{PLACE}/restart", data={"container_id": "1" * 100_000}).status_code == 413


PART = b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n'


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"--x"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"not a form"),
        ("multipart/form-data; boundary=x", b"--x\r\ncontent-disposition: form-data; name=\"name\"\r\n\r\nwor"),
        ("multipart/form-data; boundary=x", b"--x\r\ncontent-disposition: form-data\r\n\r\nwords\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"a: b\r\n" * 2000 + b"\r\n\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x", PART * 40 + b"--x--"),
    ],
)  # fmt: skip
def test_bodies_that_are_not_forms_are_rejected(api: ApiProcess, kind: str, body: bytes) -> None:
    answer = api.request("POST", TOPOLOGIES, content=body, headers={"content-type": kind})
    assert answer.status_code in (413, 422), answer.text
    assert answer.json()["message"]


def test_file_names_of_clients_are_ignored(api: ApiProcess) -> None:
    other = definition(name="other", id="other-1")
    files = {"definition": ("../../../tmp/evil", other), "topology": ("/etc/passwd", tar())}
    assert api.request("POST", TOPOLOGIES, data=FIELDS, files=files).status_code == 422


def test_stalled_upload_is_408(api: ApiProcess) -> None:
    head = (
        f"POST {TOPOLOGIES} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.admin}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n\r\n--x\r\n"
    )
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(head.encode())
        answer = b""
        while chunk := connection.recv(4096):  # ends when the server closes the connection
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 408")


def test_slow_heads_and_bodies_lose_their_connection(api: ApiProcess) -> None:
    """This includes a body that arrives slowly after the request has been answered."""
    dribbling = f"POST {PLACE}/restart HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n".encode()
    begun = [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: loc",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
        dribbling,
    ]
    opened = [socket.create_connection(("127.0.0.1", api.port), timeout=120) for _ in begun]
    for connection, begin in zip(opened, begun, strict=True):
        connection.sendall(begin)
    with contextlib.suppress(ConnectionError):
        while True:  # ends when the server closes the connection
            opened[-1].sendall(b"-")
            opened[-1].settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                if not opened[-1].recv(4096):
                    break
    for connection in opened[:-1]:
        while connection.recv(4096):
            pass
    for connection in opened:
        connection.close()


def test_aborted_upload_leaves_no_files(api: ApiProcess) -> None:
    head = (
        f"POST {TOPOLOGIES} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.admin}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 500000\r\n\r\n"
        '--x\r\ncontent-disposition: form-data; name="topology"; filename="x"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(head.encode() + b"y" * 100_000)
        wait_until(lambda: any((api.home / "uploads").iterdir()))
    wait_until(lambda: not any((api.home / "uploads").iterdir()))


def test_concurrent_uploads_are_limited(api: ApiProcess) -> None:
    head = (
        f"POST {TOPOLOGIES} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.admin}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 500000\r\n\r\n"
    )
    stop = threading.Event()

    def hold() -> None:
        with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
            connection.sendall(head.encode())
            while not stop.wait(0.2):
                connection.sendall(b"-")

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        answer = wait_until(lambda: (a := submit(api, topology=b"x"))[0] == 503 and a)
        assert "uploads at a time" in answer[1]["message"]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_unknown_paths_and_methods_are_rejected(api: ApiProcess) -> None:
    assert api.request("GET", "/nowhere").json()["message"] == "path not found; see /docs"
    assert api.request("PUT", TOPOLOGIES).status_code == 405
    assert api.request("GET", "/docs", token="").status_code == 200
    assert "POST /api/v1/topologies" in api.request("GET", "/docs", token="").text


def test_metrics_endpoint_reports_requests_and_process(api: ApiProcess) -> None:
    api.request("GET", "/healthz", token="")
    text = api.request("GET", "/metrics", token="").text
    for name in (
        "requests_total{", "ready 1.0", "event_loop_lag_seconds ", "gc_seconds ", "process_cpu_seconds_total ",
        "process_resident_memory_bytes ", "process_open_fds ",
    ):  # fmt: skip
        assert f"heron_apiserver_{name}" in text, name


def test_audit_file_names_caller_and_action_but_no_secret(api: ApiProcess) -> None:
    api.request("DELETE", PLACE, token="wrong")
    api.request("DELETE", f"{TOPOLOGIES}/box/ads/prod/nobody", headers={"X-Forwarded-For": "9.9.9.9"})
    text = (api.home / "audit.jsonl").read_text()
    assert api.admin not in text
    assert api.reader not in text
    line = next(line for line in reversed(api.audit()) if line["what"] == "kill" and line["who"] == "admin")
    assert (line["from"], line["result"], line["topology"]) == ("127.0.0.1", 404, "box/ads/prod/nobody")
    assert any(line["who"] == "nobody" and line["result"] == 401 for line in api.audit())
    assert (api.home / "audit.jsonl").stat().st_mode & 0o077 == 0


def test_server_refuses_to_listen_publicly_or_share_a_home(api: ApiProcess, tmp_path: Path) -> None:
    def start(home: Path, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "heron_apiserver", "--port", "0", "--home", str(home), *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    public = start(tmp_path / "a", "--host", "0.0.0.0")
    assert (public.returncode, "--public" in public.stderr) == (6, True)
    second = start(api.home)
    assert (second.returncode, "in use by another API server" in second.stderr) == (6, True)
    (tmp_path / "b").mkdir(mode=0o700)
    (tmp_path / "b" / "admin-token").write_text("x" * 43)
    (tmp_path / "b" / "admin-token").chmod(0o644)
    open_token = start(tmp_path / "b")
    assert (open_token.returncode, "readable by other users" in open_token.stderr) == (6, True)
