"""Download nonces: valid for their caller, for a minute, and in the issuing process only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_apiserver.access import NONCE_SECONDS, DownloadNonces, parse_proof_header

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
