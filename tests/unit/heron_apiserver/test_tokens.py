"""Stored tokens of an API server and of a tracker, and nonces of downloads.

Tokens: digests, older files, damage and rotation. A nonce is valid for its caller, for a minute, in one process.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_apiserver.access import NONCE_SECONDS, CallerRole, DownloadNonces, parse_proof_header
from heron_apiserver.tokens import TokenBook
from heron_control.web.serving import StartError
from heron_control.web.tokens import digest_of
from heron_runtime.failures import ExistsAlready, NotFound
from heron_tracker import login
from heron_tracker.login import TokenFile, parse_tokens


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_only_digests_are_stored_and_remain_valid(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    first = (tmp_path / "admin-token").read_text().strip()
    drawn = book.create("ci", CallerRole.SUBMIT, 1e12)
    kept = (tmp_path / "tokens.json").read_text()
    assert first not in kept
    assert drawn not in kept
    assert digest_of(drawn) in kept
    for file in book.created_files:
        file.unlink()
    again = TokenBook(tmp_path)
    assert again.created_files == []
    for text, name in ((first, "admin"), (drawn, "ci"), ("", None), ("wrong", None)):
        found = again.find(text)
        assert (found and found.name) == name


def test_token_files_of_older_servers_are_imported_and_replaced(tmp_path: Path) -> None:
    write(tmp_path / "admin-token", "a" * 43)
    write(tmp_path / "read-token", "r" * 43)
    book = TokenBook(tmp_path)
    assert [(token.name, token.scope) for token in book.list_all()] == [("admin", "admin"), ("read", "read")]
    write(tmp_path / "admin-token", "b" * 43)
    book = TokenBook(tmp_path)
    assert book.find("a" * 43) is None
    assert book.find("b" * 43) is not None


def test_revoked_token_stays_revoked_and_one_admin_token_remains(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    first = (tmp_path / "admin-token").read_text().strip()
    book.create("short", CallerRole.ADMIN, 1e12)
    with pytest.raises(ExistsAlready, match="last admin token"):
        book.revoke("admin")
    with pytest.raises(ExistsAlready, match="exists already"):
        book.create("short", CallerRole.READ, None)
    book.create("ada", CallerRole.ADMIN, None)
    book.revoke("admin")
    with pytest.raises(NotFound):
        book.revoke("admin")
    for each in (book, TokenBook(tmp_path)):
        assert each.find(first) is None
        assert "ada" in [token.name for token in each.list_all()]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("tokens.json", "{", "damaged"), ("tokens.json", '{"tokens": [{"name": "x"}]}', "damaged"),
        ("tokens.json", '{"tokens": []}', "no admin token is left"), ("admin-token", "short", "fewer than 20"),
        ("admin-token", "with a space in the midst", "invalid token: it has characters"),
        ("read-token", "b" * 43, "contains the token"),
    ],
)  # fmt: skip
def test_unusable_token_file_is_reported_with_a_remedy(tmp_path: Path, name: str, text: str, words: str) -> None:
    if name == "read-token":
        write(tmp_path / "admin-token", "b" * 43)
    write(tmp_path / name, text)
    with pytest.raises(StartError, match=words):
        TokenBook(tmp_path)


def test_damaged_row_with_an_invalid_scope_grants_no_permission(tmp_path: Path) -> None:
    write(tmp_path / "admin-token", "a" * 43)
    row = {"name": "x", "scope": "topology", "digest": digest_of("t" * 43), "expires": None}
    write(tmp_path / "tokens.json", json.dumps({"tokens": [row]}))
    assert TokenBook(tmp_path).find("t" * 43) is None


def test_tracker_tokens_are_reloaded_while_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOOK_SECONDS", 0.0)
    path = write(tmp_path / "tokens", "0123456789abcdef\n")
    tokens = TokenFile(path)
    assert tokens.find("0123456789abcdef")
    write(tmp_path / "new", f"# two hold\n0123456789abcdef\nsha256:{digest_of('n' * 40)} 2030-01-31T00:00:00Z\n")
    os.replace(tmp_path / "new", path)
    found = tokens.find("n" * 40)
    assert found
    assert [found.expired(at) for at in (1.8e9, 2.0e9)] == [False, True]
    write(path, "short\n")  # an invalid file changes nothing
    assert tokens.find("0123456789abcdef")
    assert tokens.find("short") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("short", "line 1: it has fewer"), ("x" * 20 + " soon", "invalid time"),
        ("sha256:12", "invalid digest"), ("\n".join("x" * 20 for _ in range(65)), "at most 64 are"),
    ],
)  # fmt: skip
def test_invalid_tracker_token_file_is_rejected(text: str, words: str) -> None:
    with pytest.raises(StartError, match=words):
        parse_tokens(text, Path("tokens"))


@pytest.mark.parametrize("text", ["", "\n", "# none\n"])
def test_tracker_file_without_tokens_revokes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(login, "LOOK_SECONDS", 0.0)
    path = write(tmp_path / "tokens", "0123456789abcdef\n")
    tokens = TokenFile(path)
    assert tokens.find("0123456789abcdef")
    write(tmp_path / "new", text)
    os.replace(tmp_path / "new", path)
    assert tokens.find("0123456789abcdef") is None
    with pytest.raises(StartError, match="contains no token"):
        TokenFile(path)


CHALLENGES = DownloadNonces(b"k" * 32)
NOW = 1_700_000_000


@given(st.integers(-5, NONCE_SECONDS + 5))
def test_nonce_is_valid_for_a_minute(later: int) -> None:
    nonce = CHALLENGES.create(NOW, "t-1", "10.0.0.1")
    assert CHALLENGES.accepts(nonce, NOW + later, "t-1", "10.0.0.1") == (0 <= later <= NONCE_SECONDS)


def test_nonce_is_bound_to_caller_and_process() -> None:
    nonce = CHALLENGES.create(NOW, "t-1", "10.0.0.1")
    assert not CHALLENGES.accepts(nonce, NOW, "t-2", "10.0.0.1")
    assert not CHALLENGES.accepts(nonce, NOW, "t-1", "10.0.0.2")
    assert not DownloadNonces(b"l" * 32).accepts(nonce, NOW, "t-1", "10.0.0.1")
    at, _, seal = nonce.partition(".")
    assert not CHALLENGES.accepts(f"{int(at, 16) + 1:x}.{seal}", NOW + 1, "t-1", "10.0.0.1")


@given(st.text())
def test_arbitrary_text_is_not_a_nonce(text: str) -> None:
    assert not CHALLENGES.accepts(text, NOW, "t-1", "10.0.0.1")


@pytest.mark.parametrize("header", ["", "Bearer x", "Heronry x", "Heronry x y z", "Basic x y"])
def test_other_headers_contain_no_proof(header: str) -> None:
    assert parse_proof_header(header) == ("", "")


@pytest.mark.parametrize("digits", ["f" * 5000, "f" * 17, "-" + "f" * 5000, "0" * 5000])
def test_nonce_with_a_long_time_is_rejected(digits: str) -> None:
    assert not CHALLENGES.accepts(f"{digits}.seal", NOW, "t-1", "10.0.0.1")
    assert not CHALLENGES.accepts(digits, NOW, "t-1", "10.0.0.1")
