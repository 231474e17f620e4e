"""Fixture of the ``heron`` command with its own home."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.heron_command import HeronCommand, heron_command


@pytest.fixture(scope="module")
def heron(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeronCommand]:
    """Yield a command whose home the tests of a file share; no topology process may be left at the end."""
    with heron_command(tmp_path_factory.mktemp("home")) as made:
        yield made
