"""Serialization of a server's rows, which its spout sends to the bolts that decode them into records."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from heronry.connect.acked import Row
from heronry.streamlet.decoding import Decoder
from heronry.streamlet.endpoints import FileSource, Source
from heronry.streamlet.reading import FilePiece, Records
from heronry.streamlet.servers import ServerSource


def packed(rows: Sequence[Row]) -> bytes:
    """Return the rows as the data of a block."""
    return pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)


class RowDecoder:
    """Decoder of rows that ``packed`` has serialized."""

    def __init__(self, source: ServerSource) -> None:
        self._source = source

    def decode(self, _: str, piece: FilePiece) -> Records:
        """Return the records of a piece. They are numbered within their split."""
        records = self._source.records(pickle.loads(piece.data))
        return Records(records, range(piece.first, piece.first + len(records)))


def decoder_of(source: Source[Any]) -> Decoder | RowDecoder | None:
    """Return the decoder of a source's blocks. None for a sequence, whose blocks are numbers."""
    if isinstance(source, ServerSource):
        return RowDecoder(source)
    return Decoder(source) if isinstance(source, FileSource) else None
