"""Topology that writes lines of a folder and a finite sequence to files and an HTTP server, exactly once.

heron submit local sinks_topology.py Sinks -- FOLDER URL NUMBERS
"""

from __future__ import annotations

import sys

from heronry import Config, Grouping, Topology
from heronry.connect.files import CsvSink, FileLines
from heronry.connect.http import HttpSink
from heronry.connect.numbers import Sequence


class Sinks(Topology):
    """Topology lines -> csv, http; numbers -> numbers_csv."""

    _folder, _url, _numbers = sys.argv[1:]
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    lines = FileLines.spec(par=2, config={"user.files.folder": f"{_folder}/lines"})
    numbers = Sequence.spec(par=2, config={"user.sequence.count": int(_numbers), "user.sequence.splits": 3})
    table = CsvSink.spec(par=2, inputs={lines: Grouping.SHUFFLE}, config={"user.sink.folder": f"{_folder}/csv"})
    post = HttpSink.spec(
        par=2,
        inputs={lines: Grouping.SHUFFLE},
        config={"user.http.url": _url, "user.http.spool": f"{_folder}/spool"},
    )
    counted = CsvSink.spec(inputs={numbers: Grouping.SHUFFLE}, config={"user.sink.folder": f"{_folder}/numbers"})
