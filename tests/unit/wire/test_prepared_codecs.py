"""Preparation of all codecs before a fork: no converter is created after ``prepare_all``."""

from __future__ import annotations

import pytest

from heron_runtime.wire import codec, message_codecs
from heron_runtime.wire.codec import Codec, UnionCodec

CODECS = {name: value for name, value in vars(message_codecs).items() if isinstance(value, Codec | UnionCodec)}


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_is_ready_after_preparation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_CONVERTERS", {})
    message_codecs.prepare_all()
    monkeypatch.setattr(codec, "_make_converter", lambda *key: pytest.fail(f"{key} was not prepared"))
    CODECS[name].prepare()
