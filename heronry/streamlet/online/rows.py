"""Rows of a server on their way from its spout to the bolts, which make records of them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from heronry.connect.acked import Row
from heronry.streamlet.decoding import Decoder
from heronry.streamlet.endpoints import FileSource, Source
from heronry.streamlet.reading import Piece, Records
from heronry.streamlet.servers import ServerSource


def packed(rows: Sequence[Row]) -> bytes:
    """As a block carries them."""
    return pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)


class RowDecoder:
    """What ``packed`` made to records."""

    def __init__(self, source: ServerSource) -> None:
        self._source = source

    def decode(self, _: str, piece: Piece) -> Records:
        """The rows of a piece, which are numbered within their split."""
        records = self._source.records(pickle.loads(piece.data))
        return Records(records, range(piece.first, piece.first + len(records)))


def decoder_of(source: Source[Any]) -> Decoder | RowDecoder | None:
    """What makes records of a source's blocks; None for a sequence, whose blocks are numbers."""
    if isinstance(source, ServerSource):
        return RowDecoder(source)
    return Decoder(source) if isinstance(source, FileSource) else None
