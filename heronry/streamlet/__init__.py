"""The Streamlet API: one program, run online by Heronry and over history by batch engines. See docs/streamlet.md."""

from heronry.streamlet.builder import Builder, Streamlet
from heronry.streamlet.endpoints import archive, collect, files, sequence, sink_of, to_files, view
from heronry.streamlet.monoid import Monoid, count, distinct, max_, mean, min_, monoid, sum_, top_k
from heronry.streamlet.program import KeyValue, Program, Windowed
from heronry.streamlet.windows import Window, sliding, tumbling

__all__ = [
    "Builder",
    "KeyValue",
    "Monoid",
    "Program",
    "Streamlet",
    "Window",
    "Windowed",
    "archive",
    "collect",
    "count",
    "distinct",
    "files",
    "max_",
    "mean",
    "min_",
    "monoid",
    "sequence",
    "sink_of",
    "sliding",
    "sum_",
    "to_files",
    "top_k",
    "tumbling",
    "view",
]
