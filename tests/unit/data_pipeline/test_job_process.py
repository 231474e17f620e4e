"""The process of a job: messages for errors, leftovers of killed jobs, and the archive of Spark's classes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from data_pipeline.__main__ import LOCK, TEMPORARY, _known, _unless_py4j, is_news
from data_pipeline.shell.class_archive import workshop
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


class Py4JNetworkError(Exception):
    """Exception named like Py4J's."""

    __module__ = "py4j.protocol"


@pytest.mark.parametrize(("error", "told"), [(Py4JNetworkError("nobody answers"), False), (OSError("disk full"), True)])
def test_py4j_exceptions_are_filtered_and_others_are_logged(
    error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    root.addFilter(is_news)
    try:
        try:
            raise error
        except Exception:
            logging.exception("Exception while sending command.")  # as Py4J logs it
        logging.error("and a word")  # by the same logger
    finally:
        root.removeFilter(is_news)
    assert [record.message for record in caplog.records] == ["Exception while sending command."] * told + ["and a word"]


CODE = "from data_pipeline.__main__ import _own_folder; _own_folder(); print('begun')"


def test_pipe_or_link_in_place_of_a_lock_stops_no_job(tmp_path: Path) -> None:
    for name, make in (("pipe", os.mkfifo), ("link", lambda path: os.symlink("/dev/tty", path))):
        folder = tmp_path / f"{TEMPORARY}{name}"
        folder.mkdir()
        make(folder / LOCK)
    (tmp_path / f"{TEMPORARY}left").mkdir()
    (tmp_path / f"{TEMPORARY}left" / LOCK).touch()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "begun\n", done.stderr
    left = {path.name for path in tmp_path.iterdir()}
    assert f"{TEMPORARY}pipe" in left
    assert f"{TEMPORARY}left" not in left, "what was left with a free lock is removed"


ROOT = Path(__file__).resolve().parents[3]
MAKER = """
import pathlib, sys
from data_pipeline.shell.class_archive import workshop

with workshop(pathlib.Path(sys.argv[1])) as folder:
    (folder / "half").write_text("made")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_leftovers_of_a_killed_writer_are_removed_and_a_live_one_is_untouched(tmp_path: Path) -> None:
    place = tmp_path / "share"
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert maker.stdout is not None
        theirs = Path(maker.stdout.readline().strip())
        with pytest.raises(RuntimeError, match="another `heron spark prepare` is writing it"), workshop(place):
            pass
        assert (theirs / "half").read_text() == "made"
    finally:
        maker.kill()
        maker.communicate()
    assert theirs.is_dir(), "kill -9 leaves it"
    (place / "spark-1.jsa").touch()
    with workshop(place) as mine:
        assert [path.name for path in place.glob(".making-*")] == [mine.name]
    assert sorted(path.name for path in place.iterdir()) == [".making.lock", "spark-1.jsa"]
