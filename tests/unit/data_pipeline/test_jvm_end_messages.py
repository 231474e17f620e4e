"""What a job says when its JVM ends, and what not."""

from __future__ import annotations

import logging

import pytest

from data_pipeline.__main__ import is_news


class Py4JNetworkError(Exception):
    """As Py4J names it."""

    __module__ = "py4j.protocol"


@pytest.mark.parametrize(("error", "told"), [(Py4JNetworkError("nobody answers"), False), (OSError("disk full"), True)])
def test_an_exception_of_py4j_is_no_news_and_any_other_is(
    error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    root.addFilter(is_news)
    try:
        try:
            raise error
        except Exception:
            logging.exception("Exception while sending command.")  # as Py4J does
        logging.error("and a word")  # the same logger
    finally:
        root.removeFilter(is_news)
    assert [record.message for record in caplog.records] == ["Exception while sending command."] * told + ["and a word"]
