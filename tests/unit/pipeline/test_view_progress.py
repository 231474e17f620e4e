"""Progress of the online layer of a view, and the resulting T of a batch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from heronry.pipeline.views import FOREVER, settled_ms
from heronry.streamlet import Builder, sequence, view
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable


def replaying(folder: Path, stop: int | None) -> Builder:
    builder = Builder("replays", {"user.streamlet.folder": f"{folder}/state"})

    def record(number: int) -> dict[str, Any]:
        return {"time": number, "key": number % 3}

    for name in ("slow", "fast"):
        rate = 10 if name == "slow" else 1000
        counts = builder.source(sequence(stop, record, rate=rate), event_time="time", name=name).key_by("key")
        counts.count_by_key(name=f"{name}-counts", parallelism=2).sink(view(name, folder / name, bucket=10))
    return builder


def test_view_reports_the_progress_of_its_sources(tmp_path: Path) -> None:
    builder = replaying(tmp_path, 400)
    assert settled_ms(tmp_path / "slow") == FOREVER, "nothing runs online"
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)
        until = world.clock.now + 60
        assert settled_ms(tmp_path / "slow") is None, "a source has said nothing yet"
        while not 10_000 < (settled_ms(tmp_path / "slow") or 0) < FOREVER:
            world.run_on(0.5)
            assert world.clock.now < until
        online = [int(bucket.name) for bucket in (tmp_path / "slow" / "online").iterdir()]
        seen = settled_ms(tmp_path / "slow")
        assert seen is not None
        assert max(online) - 20_000 <= seen < max(online) + 10_000
        world.until_final()
        assert {settled_ms(tmp_path / name) for name in ("slow", "fast")} == {FOREVER}
        world.stop()


@pytest.mark.parametrize(
    ("seen", "to_ms", "force", "expected"),
    [
        ([5000, 7000], None, False, 5000), ([FOREVER], None, False, "now"), ([], None, False, "now"),
        ([5000], 5000, False, 5000), ([5000], 5001, False, "beyond"), ([5000], 5001, True, 5001),
        ([5000, None], None, False, "unknown"), ([5000, None], 100, False, "unknown"),
        ([FOREVER], 9000, False, 9000),
    ],
)  # fmt: skip
def test_t_follows_the_slowest_source(
    tmp_path: Path, seen: list[int | None], to_ms: int | None, force: bool, expected: Any
) -> None:
    pytest.importorskip("pyspark")
    from data_pipeline.shell.request import Request
    from data_pipeline.shell.until import bounded
    from heron_runtime.failures import UsageError

    for task, watermark_ms in enumerate(seen):
        (tmp_path / "slow" / "progress").mkdir(parents=True, exist_ok=True)
        place = tmp_path / "slow" / "progress" / f"{task}.json"
        place.write_text(json.dumps({"watermark_ms": watermark_ms, "of": len(seen)}))
    request = Request(Path("x.py"), to_ms=to_ms, force=force, views=True)
    program = replaying(tmp_path, 5).build()
    if expected in ("beyond", "unknown"):
        with pytest.raises(UsageError, match=expected):
            bounded(request, program)
        return
    found = bounded(request, program).to_ms
    assert found == expected or (expected == "now" and abs(found - time.time() * 1000) < 60_000)
