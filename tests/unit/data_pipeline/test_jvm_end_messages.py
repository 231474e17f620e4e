"""Log messages of a job when its JVM ends."""

from __future__ import annotations

import logging

import pytest

from data_pipeline.__main__ import is_news


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
