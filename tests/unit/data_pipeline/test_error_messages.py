"""Messages of the command for errors that are not caused by a record."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from data_pipeline.__main__ import _known, _unless_py4j
from heronry.pipeline.views import ViewError


def spark_error(text: str) -> Exception:
    """Return an error like one raised through Py4J."""
    kind = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    error: Exception = kind(text)
    return error


def test_java_error_shows_its_cause_and_not_the_call() -> None:
    text = (
        "An error occurred while calling o61.parquet.\n"
        ": org.apache.spark.SparkException: [CANNOT_READ_FILE_FOOTER] Could not read footer of file:/in/a.parquet.\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFooterForFileError(…)\n"
    )
    told = _known(spark_error(text))
    assert told.message.startswith("Spark gave up: org.apache.spark.SparkException: [CANNOT_READ_FILE_FOOTER]")
    assert "file:/in/a.parquet" in told.message


def test_java_error_shows_its_innermost_cause() -> None:
    text = (
        "An error occurred while calling o61.text.\n"
        ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing to file:/out.\n"
        "\tat org.apache.spark.SomeClass(…)\n"
        "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
        "\tat org.apache.hadoop.SomeClass(…)\n"
        "Caused by: java.io.IOException: No space left on device\n"
        "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n"
        "\t... 27 more\n"
    )
    assert _known(spark_error(text)).message == (
        "Spark gave up: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing to file:/out. "
        "(java.io.IOException: No space left on device)"
    )


def test_view_error_is_shown_as_it_is() -> None:
    assert _known(ViewError("it cannot go back")).message == "it cannot go back"


def test_only_errors_of_py4j_threads_are_silenced(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (spark_error("Error while sending or receiving"), KeyError("lost")):
        _unless_py4j(threading.ExceptHookArgs((type(error), error, None, None)))
    said = capsys.readouterr().err
    assert "KeyError: 'lost'" in said
    assert "sending" not in said


def test_closed_output_pipe_is_not_an_error() -> None:
    program = "from data_pipeline.__main__ import _answer; _answer('word\\n' * 100_000)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == b"word\n"
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(60) == 0
