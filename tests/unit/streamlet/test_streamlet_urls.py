"""Files at URLs: same behaviour as local files over ``memory://``, changed files, ranges, errors and secrets."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from heronry import TopologyError
from heronry.connect.settings import ConnectError
from heronry.streamlet import Builder, files, to_files
from heronry.streamlet.decoding import Decoder, read_all
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.packed import ReadError
from heronry.streamlet.reading import FilePiece, list_files, listing_of, missing, open_reader
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from heronry.streamlet.trees import tree_of
from heronry.streamlet.url_tree import RANGE_BYTES
from tests.support.servers.file_ranges import range_server
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable, run_online

fsspec = pytest.importorskip("fsspec", reason="files at URLs need fsspec: pip install 'heronry[uploaders]'")

SEEDS = range(12)
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress
}  # fmt: skip


@contextmanager
def two_places() -> Iterator[tuple[Path, str]]:
    """Provide a folder and an empty URL in this process's memory."""
    folder = Path(tempfile.mkdtemp(prefix="heronry-urls-"))
    try:
        yield folder, f"memory:/{folder}"
    finally:
        shutil.rmtree(folder)
        memory = fsspec.filesystem("memory")
        if memory.exists(str(folder)):
            memory.rm(str(folder), recursive=True)


def put(url: str, name: str, data: bytes) -> None:
    fsspec.filesystem("memory").pipe_file(f"{url.removeprefix('memory:/')}/{name}", data)


def refusal(call: Callable[[], Any]) -> str:
    """Return the text of the rejection, or an empty string."""
    try:
        call()
    except ReadError as error:
        return str(error)
    return ""


def lines(draw: random.Random, form: str) -> bytes:
    rows = [draw.randrange(100) for _ in range(draw.randrange(40))]
    if form == "json":
        return "".join(json.dumps({"n": n}) + "\n" for n in rows).encode()
    ends = draw.choice(["\n", "\r\n"])
    body = "".join(f"{n}{ends}" for n in rows)
    return (f"n{ends}{body}" if form == "csv" else body + draw.choice(["", "not whole"])).encode()


def pieces(source: FileSource, size: int) -> list[tuple[str, FilePiece]]:
    """Read each piece with a new reader that starts where the previous one ended, as after a restore."""
    found = []
    with closing(tree_of(source)) as tree:
        for name, seen in sorted(listing_of(source, tree).items()):
            offset = number = 0
            while True:
                with closing(open_reader(source, name, offset, number, tree, seen.version)) as reader:
                    piece = reader.read(size)
                if piece is None:
                    break
                found.append((name, piece))
                assert len(found) < 5000, "it does not end"
                offset, number = piece.next_offset, piece.next_number
    return found


def test_files_at_a_url_are_read_like_local_files() -> None:
    """Covers names, folders, compression and pieces of any size, each possibly the first after a fault."""
    for seed in SEEDS:
        draw = random.Random(seed)
        form = draw.choice(["text", "json", "csv"])
        with two_places() as (folder, url):
            for number in range(draw.randrange(3, 9)):
                day = draw.choice(["day=1", "day=1", "day=2/part=a%20b", "day=7/.hidden", "day=3/_temporary"])
                ending = draw.choice(["", "", *PACK])
                name, data = f"{day}/{number} é%41{ending}", PACK[ending](lines(draw, form))
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
                put(url, name, data)
            put(url, ".ignored", b"x\n")
            declared: Any = {} if form == "text" else {"day": "int"}
            here, there = (files(place, form, partitions=declared) for place in (folder, url))
            assert list_files(there) == list_files(here)
            assert list(read_all(there)) == list(read_all(here)), seed
            size = draw.choice([1, 7, 100, 1 << 17])
            found = pieces(there, size)
            assert found == pieces(here, size), seed
            decoder = Decoder(there)
            again = [record for name, piece in found for record in decoder.decode(name, piece).records]
            assert again == [record for record, _ in read_all(here)]


def test_growing_folder_at_a_url_is_read_once() -> None:
    """Lines are appended and files added, with faults and any number of tasks."""
    for seed in SEEDS[:6]:
        draw = random.Random(seed)
        with two_places() as (folder, url):
            builder = Builder("grows", {"user.streamlet.folder": str(folder / "own")})
            source = builder.source(files(url, "json", grows=True), name="lines", parallelism=2)
            source.sink(to_files(folder / "out"), parallelism=2)
            bodies: dict[str, bytes] = {}
            written = 0
            with importable(builder):
                world = OnlineEngine(definition_of(builder), folder, seed)
                for step in range(4):
                    for name in draw.sample(["a", "b/c", f"new-{step}.gz"], 2):
                        count = draw.randrange(30)
                        more = "".join(f"{n}\n" for n in range(written, written + count)).encode()
                        written += count
                        bodies[name] = bodies.get(name, b"") + more
                        put(url, name, PACK[".gz"](more) if name.endswith(".gz") else bodies[name] + b" ")
                    world.run_on(draw.choice([3, 8]))
                    if draw.random() < 0.6:
                        world.kill(draw.choice(world.plan.tasks()))
                    elif draw.random() < 0.5:
                        world.rescale({"lines": draw.randrange(1, 4)})
                world.run_on(14)
                world.stop()
            assert sorted(read(folder / "out")) == list(range(written)), seed


def test_changed_file_is_not_read_further() -> None:
    """Applies to an open reader and to one that resumes. Later files are not part of a fixed source."""
    data = b"".join(b"%d\n" % n for n in range(1000))
    for change in (data[:-4] + b"new\n", data + b"more\n", data[:50]):
        with two_places() as (folder, url):
            put(url, "a", data)
            source = files(url, "text")
            with closing(tree_of(source)) as tree:
                version = listing_of(source, tree)["a"].version
                reader = open_reader(source, "a", 0, 0, tree, version)
                first = reader.read(100)
                assert first is not None
                put(url, "a", change)
                told = refusal(lambda: open_reader(source, "a", *first[3:], tree, version))  # noqa: B023  # called at once
                assert told.startswith(f"{url}/a has changed since it was listed")
                assert "new name" in told
                assert refusal(lambda: tree.check("a", version)) == told  # noqa: B023  # called at once
    with two_places() as (folder, url):
        put(url, "a", data)
        builder = Builder("changed", {"user.streamlet.folder": str(folder / "own")})
        builder.source(files(url, "text"), name="lines").sink(to_files(folder / "out"), name="out")
        with importable(builder):
            world = OnlineEngine(definition_of(builder), folder, 1)
            put(url, "b", b"later\n")
            world.until_final()
            world.kill(world.plan.tasks()[0])
            world.until_final()
            world.stop()
        assert sorted(map(int, read(folder / "out"))) == list(range(1000))


def test_file_changed_during_downtime_fails_the_topology() -> None:
    with two_places() as (folder, url):
        put(url, "a", b"%09999d\n" % 7 * 2000)
        builder = Builder("changed", {"user.streamlet.folder": str(folder / "own")})
        builder.source(files(url, "text"), name="lines").sink(to_files(folder / "out"), name="out")
        with importable(builder):
            world = OnlineEngine(definition_of(builder), folder, 1)
            world.clock.now += 3.0  # a checkpoint is due while there is input left
            while world.last.checkpoint < 1:
                world.deliver()
                world.step(world.random.choice(world.plan.tasks()))
            assert not world.is_final()
            put(url, "a", b"%09999d\n" % 7 * 2001)
            world.kill(world.plan.tasks()[0])
            with pytest.raises(AssertionError, match=rf"the topology has failed: .*{url}/a has changed since"):
                world.run_on(60)
            world.stop()


def test_file_changed_after_it_was_read_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with two_places() as (folder, url):
        builder = Builder("again", {"user.streamlet.folder": str(folder / "own")})
        builder.source(files(url, "text", grows=True), name="lines").sink(to_files(folder / "out"), name="out")
        put(url, "a.gz", gzip.compress(b"1\n"))
        with importable(builder):
            world = OnlineEngine(definition_of(builder), folder, 1)
            world.run_on(8)
            put(url, "a.gz", gzip.compress(b"2\n3\n"))
            world.run_on(15)
            world.stop()
        assert read(folder / "out") == ["1"]
        assert caplog.text.count("a.gz has changed since it was read: its new contents are not read") == 1


def test_columns_and_archives_at_a_url_are_read() -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    orc = pytest.importorskip("pyarrow.orc")
    rows = [{"a": n, "b": str(n)} for n in range(10_000)]
    hour = {
        "message_id": ["s:f:0", "s:f:1"], "index": ["", ""], "event_time": arrow.array([1, 2], arrow.int64()),
        "value": ['"x"', '"y"'],
    }  # fmt: skip
    for form, write, table in (
        ("parquet", parquet.write_table, arrow.Table.from_pylist(rows)),
        ("orc", orc.write_table, arrow.Table.from_pylist(rows)),
        ("archive", parquet.write_table, arrow.table(hour)),
    ):
        with two_places() as (folder, url):
            sink = io.BytesIO()
            write(table, sink)
            for name in ("date=1970-01-01/hour=00/1.parquet", "date=1970-01-01/hour=00/2.parquet"):
                put(url, name, sink.getvalue())
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(sink.getvalue())
            here, there = files(folder, form), files(url, form)
            assert list(read_all(there)) == list(read_all(here)), form
            assert pieces(there, 1) == pieces(here, 1), form
            if form == "archive":
                with closing(tree_of(there)) as tree:
                    version = listing_of(there, tree)["date=1970-01-01/hour=00"].version
                    put(url, "date=1970-01-01/hour=00/3.parquet", sink.getvalue())
                    with pytest.raises(ReadError, match="hour=00 has changed"):
                        open_reader(there, "date=1970-01-01/hour=00", 0, 0, tree, version).read()


def test_lookup_table_at_a_url_is_read() -> None:
    with two_places() as (folder, url):
        put(url, "table.csv", b"k,v\na,1\nb,2\n")
        builder = Builder("table", {"user.streamlet.folder": str(folder / "own")})
        looked = builder.source([{"k": "a"}, {"k": "c"}]).lookup(files(f"{url}/table.csv", "csv"), on="k", name="l")
        looked.map(lambda pair: pair[1]["v"]).sink(to_files(folder / "out"), name="out")
        assert run(builder.build())["out"] == ["1"]
        run_online(builder, folder)
        assert read(folder / "out") == ["1"]


def test_resumed_read_fetches_only_the_rest(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 99 + b"\n" + b"%09d\n" % 7 * (10 * RANGE_BYTES // 10))
    (tmp_path / "secret").write_text("x")
    with range_server(tmp_path) as server:
        source = files(server.url("a"), "text")
        at = (tmp_path / "a").stat().st_size - 1000
        with closing(tree_of(source)) as tree:
            (seen,) = listing_of(source, tree).values()
            with closing(open_reader(source, "", at, 5, tree, seen.version)) as reader:
                piece = reader.read()
            assert piece is not None
            assert piece.data == b"%09d\n" % 7 * 100
            assert server.given <= 1000
        with pytest.raises(FileNotFoundError, match="no such file"):
            list(read_all(files(server.url("none"), "text")))
        with pytest.raises(ConnectError, match=r"/secret is not readable \(.*403.*options="):
            list(read_all(files(server.url("secret"), "text")))
        server.ranges = False
        with pytest.raises(ReadError, match=r"/a cannot be read: its server .* does not support ranges"):
            list(read_all(source))
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith(("heronry-http", "fsspec"))]
    assert not left, "a task that is closed leaves no thread"


def test_invalid_urls_are_rejected_without_their_secrets(tmp_path: Path) -> None:
    for make, told in (
        (lambda: files("s3://me:hush-hush@bucket/x", "text"), r"s3://bucket/x holds a secret.*options="),
        (lambda: files("https://host/x?X-Amz-Signature=hush-hush", "text"), "https://host/x holds a secret"),
        (lambda: to_files("sftp://me:hush-hush@host/x"), "sftp://host/x holds a secret"),
        (lambda: files("simplecache::s3://bucket/x", "text"), "names no place"),
        (lambda: files("s3://", "text"), "names no place"),
        (lambda: files("https://host/x/", "text"), "cannot be a folder"),
        (lambda: files("https://host/x", "text", grows=True), "or grow"),
        (lambda: files("s3://bucket/x", "text", options="here.json"), "whole path"),
        (lambda: files("/here", "text", options="/here.json"), "are for URLs"),
    ):
        with pytest.raises(TopologyError, match=told) as caught:
            make()  # type: ignore[no-untyped-call]  # a lambda
        assert "hush" not in str(caught.value)
    builder = Builder("far")
    builder.source(files("nonsense://far/in", "text"), name="a").sink(to_files("hdfs://far/out"), name="b")
    with (
        importable(builder),
        pytest.raises(TopologyError, match=r"step 'b': hdfs://far/out is a URL.*rename") as refused,
    ):
        definition_of(builder)
    assert len(refused.value.problems) == 1
    (note,) = missing(builder.build())
    assert note.startswith("step 'a': nonsense://far/in has an unknown scheme")


def test_unopenable_url_is_reported_without_its_secrets(tmp_path: Path) -> None:
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"known_hosts": str(tmp_path / "none"), "password": "hush-hush"}))
    for url, file, told in (
        ("memory://x", tmp_path / "none", "none: No such file.*on each host"),
        ("memory://x", Path(__file__), "is not a JSON object"),
        ("s3://bucket/x", options, r"cannot be read here .*pip install fsspec s3fs"),
    ):
        if url.startswith("s3") and fsspec.utils.get_package_version_without_import("s3fs"):
            continue
        with pytest.raises(ConnectError, match=told) as caught:
            list_files(files(url, "text", options=file))
        assert "hush" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no such file"):
        list_files(files("memory://nowhere", "text"))
