"""Files at URLs that Spark cannot read: its Hadoop does not know the store, or the program gives fsspec options for it.

The driver lists the files, and the workers read them by our own reader (unpack.py), as compressed files. One task reads
each file as a whole, and checks before and after that it is still the listed one. Columnar records would go through
Python twice, so files of these formats are rejected by name. Streams are also rejected, as Spark lists their files.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from data_pipeline.core.plan import CannotPlan
from data_pipeline.shell.unpack import Part
from heron_runtime.model.file_urls import SINGLE, scheme_of
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.reading import LINES, listing_of
from heronry.streamlet.trees import tree_of


def is_foreign(spark: SparkSession, source: FileSource[Any]) -> bool:
    """Return True for a URL that Spark does not read."""
    if not is_url(source.path):
        return False
    scheme = scheme_of(source.path)
    return bool(source.options) or scheme in SINGLE or not _knows(spark, scheme)


def _knows(spark: SparkSession, scheme: str) -> bool:
    """Return True if Hadoop has a class for the scheme."""
    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Py4JJavaError:
        return False
    return True


def refuse_stream(step: str, source: FileSource[Any]) -> None:
    """Reject a stream over these files. Always raises CannotPlan."""
    raise CannotPlan(
        f"step {step!r}: micro-batches are made of files that Spark lists, and it cannot list {source.path}: run it as "
        "a batch or online, or name a URL that Spark's Hadoop knows (s3a://, hdfs://, abfs://, gs://), without options="
    )


def parts_of(step: str, source: FileSource[Any]) -> list[Part]:
    """Return the existing files. Raises CannotPlan, FileNotFoundError, ReadError or ConnectError."""
    if source.format not in LINES:
        raise CannotPlan(
            f"step {step!r}: Spark's Hadoop does not support {scheme_of(source.path)}:// with these options, and "
            f"otherwise Spark reads only text, json and csv, not {source.format}: use a supported URL (s3a://, "
            "hdfs://, abfs://, gs://) without options=, or a folder"
        )
    with closing(tree_of(source)) as tree:
        listing = listing_of(source, tree)
    as_lines = replace(source, format="text")  # a CSV header counts as a line, as in files that Spark reads
    return [Part(as_lines, name, seen.size, seen.version) for name, seen in sorted(listing.items())]
