"""Fields from folder names: values that ``NAME=VALUE`` in a file's path gives its records, the same for every engine.

Pure.

Theory of operation. Hive, Spark and ``to_files(…, partition_by=…)`` (layout.py) put records into folders named after
the values of fields. A source that declares such names restores them. Each record of a file gets the values in its
path. If several folders have the same name, the innermost applies. If the record itself has the field, the folder takes
precedence, as in Spark.

``%XX`` is the character with that number, as in Hive (an invalid escape stands for itself), and
``__HIVE_DEFAULT_PARTITION__`` is None. Folders that are not declared are ignored. A file without a folder of a declared
name is rejected, and so is a value that is not of the declared type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from heron_runtime.failures import listing
from heronry.streamlet.layout import NO_VALUE
from heronry.streamlet.packed import ReadError

PARTITION_TYPES = ("str", "int")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_INT = re.compile(r"[+-]?[0-9]{1,4000}")
_MAX_NAMED = 5


class Folders:
    """Parser of the folder names of a source, from (name, type) of each declared field."""

    def __init__(self, declared: Iterable[tuple[str, str]]) -> None:
        self._declared = tuple(declared)
        self._known: dict[str, dict[str, Any]] = {}  # by folder

    def of(self, path: str) -> Mapping[str, Any]:
        """Return the fields that the path of a file gives its records.

        Raises:
            ReadError: A folder is missing, or a value has the wrong type. The message names the file.
        """
        folder = path.rpartition("/")[0]
        found = self._known.get(folder)
        if found is None:
            found = self._known[folder] = self._read(path, folder)
        return found

    def put(self, record: Any, path: str) -> dict[str, Any]:
        """Return the record with the fields of its path added.

        Raises:
            ReadError: A folder is missing, or a value has the wrong type.
            TypeError: The record has no fields.
        """
        fields = self.of(path)
        if not isinstance(record, dict):
            raise TypeError("the record has no fields, so it cannot have those of its folder")
        return {**record, **fields}

    def refuse(self, paths: Iterable[str]) -> None:
        """Check the paths of files.

        Raises:
            ReadError: Files lack a folder, or a value has the wrong type. The message names them.
        """
        wrong = []
        for path in paths:
            try:
                self.of(path)
            except ReadError as error:
                wrong.append(str(error))
        if wrong:
            raise ReadError(listing(wrong[:_MAX_NAMED]) + (f" and {more} more" if (more := len(wrong[5:])) else ""))

    def _read(self, path: str, folder: str) -> dict[str, Any]:
        there = {}
        for part in PurePosixPath(folder).parts:
            name, equals, value = part.partition("=")
            if equals:
                there[unescaped(name)] = None if value == NO_VALUE else unescaped(value)
        missing = [name for name, _ in self._declared if name not in there]
        if missing:
            raise ReadError(
                f"{path} is not in a folder {'/'.join(f'{name}=…' for name in missing)}, as partitions= says; take it "
                "away, or name its folder so"
            )
        return {name: _typed(path, name, kind, there[name]) for name, kind in self._declared}


def unescaped(text: str) -> str:
    """Return a name or value as it was before it was escaped for a path."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _typed(path: str, name: str, kind: str, value: str | None) -> Any:
    if kind == "str" or value is None:
        return value
    if not _INT.fullmatch(value):
        raise ReadError(f"{path}: {value!r} in {name}={value} is not an int, the type that partitions= gives")
    return int(value)
