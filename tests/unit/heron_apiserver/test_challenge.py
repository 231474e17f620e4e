"""A nonce is good for whom it was given to, for a minute, and from this process alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_apiserver.access import NONCE_SECONDS, DownloadNonces, parse_proof_header

CHALLENGES = DownloadNonces(b"k" * 32)
NOW = 1_700_000_000


@given(st.integers(-5, NONCE_SECONDS + 5))
def test_it_lives_for_a_minute(later: int) -> None:
    nonce = CHALLENGES.create(NOW, "t-1", "10.0.0.1")
    assert CHALLENGES.accepts(nonce, NOW + later, "t-1", "10.0.0.1") == (0 <= later <= NONCE_SECONDS)


def test_it_is_of_one_caller_and_one_process() -> None:
    nonce = CHALLENGES.create(NOW, "t-1", "10.0.0.1")
    assert not CHALLENGES.accepts(nonce, NOW, "t-2", "10.0.0.1")
    assert not CHALLENGES.accepts(nonce, NOW, "t-1", "10.0.0.2")
    assert not DownloadNonces(b"l" * 32).accepts(nonce, NOW, "t-1", "10.0.0.1")
    at, _, seal = nonce.partition(".")
    assert not CHALLENGES.accepts(f"{int(at, 16) + 1:x}.{seal}", NOW + 1, "t-1", "10.0.0.1")


@given(st.text())
def test_what_nobody_gave_is_not_ours(text: str) -> None:
    assert not CHALLENGES.accepts(text, NOW, "t-1", "10.0.0.1")


@pytest.mark.parametrize("header", ["", "Bearer x", "Heronry x", "Heronry x y z", "Basic x y"])
def test_other_headers_hold_no_proof(header: str) -> None:
    assert parse_proof_header(header) == ("", "")


@pytest.mark.parametrize("digits", ["f" * 5000, "f" * 17, "-" + "f" * 5000, "0" * 5000])
def test_a_nonce_with_a_long_time_is_not_ours(digits: str) -> None:
    assert not CHALLENGES.accepts(f"{digits}.seal", NOW, "t-1", "10.0.0.1")
    assert not CHALLENGES.accepts(digits, NOW, "t-1", "10.0.0.1")
