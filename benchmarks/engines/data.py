"""Input of the programs: a text, and tables of views, clicks and purchases, determined by the number of records.

A day of events, in order of time, in four Parquet files per table. Users return in sessions of a few views; pages and
prices are random. Times are milliseconds since 1970.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

TEXT = Path(__file__).resolve().parents[2] / "examples" / "data" / "northanger_abbey.txt"
NEW_YEAR_MS = 1_767_225_600_000
DAY_MS = 86_400_000
FILES = 4
PAGES = 1000
VIEWS_A_USER = 50


def prepare(folder: Path, records: int) -> None:
    """Write ``text``, ``views``, ``clicks`` and ``purchases`` to ``folder``, unless they exist.

    The text has ``records`` words, with as many views, half as many clicks, and a tenth as many purchases.
    """
    done = folder / "ready"
    if done.exists() and done.read_text() == str(records):
        return
    shutil.rmtree(folder, ignore_errors=True)
    once = TEXT.read_text()
    text = folder / "text"
    text.mkdir(parents=True)
    for number in range(FILES):
        text.joinpath(f"{number}.txt").write_text(once * max(1, records // FILES // len(once.split())))
    for seed, (name, rows) in enumerate((("views", records), ("clicks", records // 2), ("purchases", records // 10))):
        _table(folder / name, rows, max(1, records // VIEWS_A_USER), seed)
    done.write_text(str(records))


def _table(folder: Path, rows: int, users: int, seed: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    random = np.random.default_rng(seed)
    times = NEW_YEAR_MS + np.sort(random.integers(0, DAY_MS, rows))
    columns: dict[str, Any] = {
        "time": pa.array(times),
        "user": _names("u", random.integers(0, users, rows)),
        "page": _names("p", random.integers(0, PAGES, rows)),
        "cents": pa.array(random.integers(1, 100_000, rows)),
    }
    table, length = pa.table(columns), -(-rows // FILES)
    for number in range(FILES):
        pq.write_table(table.slice(number * length, length), folder / f"{number}.parquet")


def _names(letter: str, numbers: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.string()), "")
