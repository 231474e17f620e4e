"""The ``heron`` command in a home of its own. The tracker process is that of the tracker's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.heron_command import HeronCommand, heron_command


@pytest.fixture(scope="module")
def heron(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeronCommand]:
    """One home for the tests of a file; nothing of any topology may be left at the end."""
    with heron_command(tmp_path_factory.mktemp("home")) as made:
        yield made
