"""Compressed files and byte order marks: read equally by every engine or rejected by name."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronry.api.errors import TopologyError
from heronry.streamlet import Builder, collect, files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.packed import BYTE_ORDER_MARK, ReadError
from heronry.streamlet.reading import LineReader
from heronry.streamlet.reference import run
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

PLAIN = b"".join(b"line %d \xc3\xa4\r\n" % number for number in range(60_000)) + b"the last one"


def zst(data: bytes) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    sink = arrow.BufferOutputStream()
    with arrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return bytes(sink.getvalue().to_pybytes())


Pack = Callable[[bytes], bytes]
PACK: dict[str, Pack] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zst}


def records(source: Any) -> list[Any]:
    return [record for record, _ in read_all(source)]


def online(source: Any, folder: Path) -> list[Any]:
    found: list[Any] = []
    builder = Builder("packed", config={"user.streamlet.folder": str(folder)})
    builder.source(source).tap(found.append)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), folder, 0)
        world.until_final()
        world.stop()
    return found


@pytest.mark.parametrize("ending", PACK)
def test_compressed_file_is_read_like_its_content(tmp_path: Path, ending: str) -> None:
    pack = PACK[ending]
    half = len(PLAIN) // 2
    (tmp_path / f"text{ending}").write_bytes(pack(PLAIN[:half]) + pack(PLAIN[half:]))  # two members in one file
    source = files(tmp_path, "text")
    expected = PLAIN.decode().replace("\r", "").split("\n")
    assert records(source) == expected
    assert sorted(online(source, tmp_path / ".state")) == sorted(expected)
    reader, offset, number = LineReader(source, f"text{ending}"), 0, 0
    while (piece := reader.read()) is not None:
        again = LineReader(source, f"text{ending}", offset, number)
        assert again.read(piece.next_offset - offset) == piece
        again.close()
        offset, number = piece.next_offset, piece.next_number
    reader.close()


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("harm", ["cut", "changed", "none of it"])
def test_damaged_compressed_file_is_named(tmp_path: Path, ending: str, harm: str) -> None:
    data = PACK[ending](PLAIN)
    middle = len(data) // 2
    harmed = {
        "cut": data[:middle], "changed": data[:middle] + bytes(255 - b for b in data[middle:-8]) + data[-8:],
        "none of it": PLAIN,
    }[harm]  # fmt: skip
    (tmp_path / f"a{ending}").write_bytes(harmed)
    with pytest.raises(ReadError, match=rf"a\{ending} cannot be read as \{ending} \(.+\): it is cut off or damaged"):
        records(files(tmp_path, "text"))


def test_compressed_csv_in_a_growing_folder_is_read(tmp_path: Path) -> None:
    rows = b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(50_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(rows.removesuffix(b"\n")))
    source = files(tmp_path, "csv", grows=True, schema={"a": "int"})
    assert records(source) == [{"a": n} for n in range(50_000)]


@pytest.mark.parametrize("name", ["a.lz4", "a.txt.zip", "a.tar.gz", "A.TGZ", "deep/a.Z"])
def test_unsupported_compression_is_rejected_at_submission(tmp_path: Path, name: str) -> None:
    place = tmp_path / "in" / name
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x")
    builder = Builder("refused")
    builder.source(files(tmp_path / "in", "json")).sink(collect())
    with pytest.raises(TopologyError, match=f"step 'source': '.*{Path(name).name}': no engine reads files packed like"):
        definition_of(builder)
    with pytest.raises(ReadError, match="no engine reads"):
        run(builder.build())


def test_zst_without_pyarrow_is_rejected_at_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name))
    (tmp_path / "a.zst").write_bytes(b"x")
    builder = Builder("refused")
    builder.source(files(tmp_path / "a.zst", "text")).sink(collect())
    with pytest.raises(TopologyError, match=r"a\.zst'?: \.zst needs pyarrow, which is not installed"):
        definition_of(builder)


@pytest.mark.parametrize("packed", [False, True])
def test_byte_order_mark_is_not_part_of_the_first_record(tmp_path: Path, packed: bool) -> None:
    texts = {
        "text": (b"one\n" + BYTE_ORDER_MARK + b"two\n", ["one", "\ufefftwo"]),
        "json": (b'{"a": 1}\n2\n', [{"a": 1}, 2]),
        "csv": (b"a,b\n1,2\n", [{"a": "1", "b": "2"}]),
    }
    for form, (data, expected) in texts.items():
        for name, content in (("a", BYTE_ORDER_MARK + data), ("b", BYTE_ORDER_MARK)):
            place = tmp_path / form / (f"{name}.gz" if packed else name)
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(gzip.compress(content) if packed else content)
        source = files(tmp_path / form, form)
        assert records(source) == expected
        assert online(source, tmp_path / f".{form}") == expected
