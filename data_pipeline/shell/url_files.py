"""Files at URLs that Spark cannot read, because its Hadoop knows no such store or because a program gives fsspec's
options for it: listed by the driver, and read in the workers by our own reader (unpack.py), as compressed files are.

Each file is read by one task, whole; that it is still the one that was listed is looked at before and after. Records of
columns would go through Python twice, so files of these are refused by name; so is a stream, whose files Spark lists.
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
    """True for a URL that Spark does not read."""
    if not is_url(source.path):
        return False
    scheme = scheme_of(source.path)
    return bool(source.options) or scheme in SINGLE or not _knows(spark, scheme)


def _knows(spark: SparkSession, scheme: str) -> bool:
    """True if Hadoop has a class for it."""
    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Py4JJavaError:
        return False
    return True


def refuse_stream(step: str, source: FileSource[Any]) -> None:
    """Raises CannotPlan."""
    raise CannotPlan(
        f"step {step!r}: micro-batches are made of files that Spark lists, and it cannot list {source.path}: run it as "
        "a batch or online, or name a URL that Spark's Hadoop knows (s3a://, hdfs://, abfs://, gs://), without options="
    )


def parts_of(step: str, source: FileSource[Any]) -> list[Part]:
    """The files there are. Raises CannotPlan, FileNotFoundError, ReadError, ConnectError."""
    if source.format not in LINES:
        raise CannotPlan(
            f"step {step!r}: Spark's Hadoop knows no {scheme_of(source.path)}:// with these options, and without it "
            f"Spark reads text, json and csv alone, not {source.format}: name a URL that it knows (s3a://, hdfs://, "
            "abfs://, gs://), without options=, or a folder"
        )
    with closing(tree_of(source)) as tree:
        found = listing_of(source, tree)
    as_lines = replace(source, format="text")  # a csv's header is one, as in what Spark reads
    return [Part(as_lines, name, seen.size, seen.version) for name, seen in sorted(found.items())]
