"""Partitions of Iceberg tables, computed with the library's transforms and folder names.

The library's transforms of Arrow columns require another package (``pyiceberg-core``). This module uses the transforms
of single values, which the library itself applies to predicates. They use a Decimal's written form, so a Decimal is
first quantized to the column's scale: 1.5 and 1.50 belong to the same bucket. A key contains JSON values only; other
values are restored from it. Rejected partitions: floats by identity (0.0 and -0.0 are equal but would be two
partitions), and unknown transforms.
"""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

from heronry.connect.lake_parts import Partitions, Place

EXACT = Context(prec=76)  # twice the maximum digits of a column


def refused(spec: Any, schema: Any) -> Iterator[str]:
    """Yield the reasons why a table with this spec and schema, both the library's, cannot be written."""
    transforms = importlib.import_module("pyiceberg.transforms")
    columns = {column.field_id: column for column in schema.fields}
    for field in spec.fields:
        column, plain = columns.get(field.source_id), isinstance(field.transform, transforms.IdentityTransform)
        if isinstance(field.transform, transforms.UnknownTransform):
            yield f"the partition {field.name} by an unsupported transform"
        elif column is None:
            yield f"the partition {field.name} by a column that is nested, or gone"
        elif plain and str(column.field_type) in ("float", "double"):
            yield f"the column {column.name} {column.field_type} as a partition"


class IcebergPartitions(Partitions):
    """Partitions of an Iceberg table whose partition fields were accepted by ``refused``."""

    def __init__(self, spec: Any, schema: Any, arrow: Any) -> None:
        """Prepare the transforms of the spec's fields.

        Args:
            spec: The library's partition spec.
            schema: The library's schema.
            arrow: The Arrow schema.
        """
        sources = [schema.find_field(field.source_id) for field in spec.fields]
        told = (f"{field.transform} of {source.name}" for field, source in zip(spec.fields, sources, strict=True))
        super().__init__(", ".join(told), [source.name for source in sources], arrow)
        self._spec, self._schema = spec, schema
        self._made = [_made(field, source.field_type) for field, source in zip(spec.fields, sources, strict=True)]
        self._named = lru_cache(4096)(self._name)  # there are few partitions, compared to rows

    def of(self, values: Sequence[Any]) -> Place:
        """Return the partition of the columns' values."""
        return self._named(*[make(value) for make, value in zip(self._made, values, strict=True)])

    def _name(self, *found: Any) -> Place:
        record = importlib.import_module("pyiceberg.typedef").Record(*found)
        return Place(self._spec.partition_to_path(record, self._schema), tuple(map(_kept, found)))

    def record(self, key: Sequence[Any]) -> Any:
        """Return the library's record for a partition's key."""
        types = [field.field_type for field in self._spec.partition_type(self._schema).fields]
        values = [_again(value, str(of)) for value, of in zip(key, types, strict=True)]
        return importlib.import_module("pyiceberg.typedef").Record(*values)


def _made(field: Any, of: Any) -> Callable[[Any], Any]:
    """Return a function from a column's value to the partition's value in the library's form (days, microseconds)."""
    transform, datetimes = field.transform.transform(of), importlib.import_module("pyiceberg.utils.datetime")
    scale = Decimal(1).scaleb(-of.scale) if hasattr(of, "scale") else None

    def made(value: Any) -> Any:
        if scale is not None and value is not None:
            value = value.quantize(scale, context=EXACT)
        elif isinstance(value, dt.datetime):
            value = datetimes.datetime_to_micros(value)
        elif isinstance(value, dt.date):
            value = datetimes.date_to_days(value)
        return transform(value)

    return made


def _kept(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value) if isinstance(value, Decimal) else value


def _again(kept: Any, of: str) -> Any:
    if kept is None:
        return None
    return bytes.fromhex(kept) if of == "binary" else Decimal(kept) if of.startswith("decimal") else kept
