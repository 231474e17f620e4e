"""Link proofs: each is valid for one role, opening and nonce only."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.net.frames import MAX_HANDSHAKE_BYTES, Tag
from heron_runtime.net.handshake import (
    CALLER,
    KEY_BYTES,
    LINK_VERSION,
    SERVER,
    LinkRefused,
    Opening,
    decode_challenge,
    decode_opening,
    encode,
    instance_key,
    is_proof,
    prove,
)
from heron_runtime.wire.errors import MalformedMessage

NONCE = bytes(range(32))
LONGEST_ID = 1024


def opening(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "version": LINK_VERSION, "stream": Tag.DATA, "topology_id": "t-1", "task": 7, "incarnation": 3, "nonce": NONCE,
        **changes,
    }  # fmt: skip
    return encode(Opening(**fields))  # type: ignore[arg-type]


def test_proof_is_valid_only_for_its_inputs() -> None:
    first = opening()
    proof = prove("secret", CALLER, first, NONCE)
    assert is_proof(proof, "secret", CALLER, first, NONCE)
    assert len(proof) == 32
    assert not is_proof(proof, "guess", CALLER, first, NONCE)
    assert not is_proof(proof, "secret", SERVER, first, NONCE), "sent back to who gave it"
    assert not is_proof(proof, "secret", CALLER, first, bytes(32)), "played again"
    for change in (
        {"task": 8}, {"incarnation": 4}, {"stream": Tag.CONTROL}, {"topology_id": "t-2"}, {"nonce": bytes(32)},
    ):  # fmt: skip
        assert not is_proof(proof, "secret", CALLER, opening(**change), NONCE), change
    assert not is_proof(b"", "secret", CALLER, first, NONCE)


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
def test_proof_separates_opening_and_nonce(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    same = prove("secret", CALLER, a, b) == prove("secret", CALLER, c, d)
    assert same == ((a, b) == (c, d))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_neither_opening_nor_challenge(data: bytes) -> None:
    for decode in (decode_opening, decode_challenge):
        with pytest.raises(MalformedMessage):
            decode(data)


def test_garbled_opening_is_malformed_or_another_one() -> None:
    data = opening()
    malformed = 0
    for place in range(len(data)):
        for wrong in (0xCF, 0xFF, data[place] ^ 1):
            try:
                decode_opening(data[:place] + bytes([wrong]) + data[place + 1 :])
            except MalformedMessage:
                malformed += 1
            except LinkRefused:
                continue  # another version
    assert malformed > 0


def test_opening_requires_version_stream_and_full_nonce() -> None:
    assert decode_opening(opening()).task == 7
    with pytest.raises(LinkRefused, match="version 1 here, not 9"):
        decode_opening(opening(version=9))
    with pytest.raises(MalformedMessage, match="unknown stream 18"):
        decode_opening(opening(stream=Tag.PROOF))
    with pytest.raises(MalformedMessage, match="length"):
        decode_opening(opening(nonce=os.urandom(31)))


def test_longest_opening_fits_into_a_handshake_frame() -> None:
    longest = opening(topology_id="t" * LONGEST_ID, task=2**63, incarnation=2**63, nonce=os.urandom(32))
    assert len(longest) <= MAX_HANDSHAKE_BYTES


def test_each_task_has_its_own_key() -> None:
    keys = {instance_key("secret", t, c, k) for t in ("a", "b") for c in (1, 11) for k in (1, 11)}
    assert len(keys) == 8, "no two tasks, containers or topologies share one"
    assert {len(key) for key in keys} == {KEY_BYTES}
    assert not any("secret" in key for key in keys)
    mine, other = instance_key("secret", "a", 1, 1), instance_key("secret", "a", 1, 2)
    assert not is_proof(prove(mine, CALLER, b"task 2", NONCE), other, CALLER, b"task 2", NONCE), "as another task"
