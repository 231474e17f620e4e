"""The ``heron`` command in a home of its own, as the tests of the front door have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from front_door import FrontDoor, front_door


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """One home for the tests of a file; nothing of any topology may be left at the end."""
    with front_door(tmp_path_factory.mktemp("door")) as made:
        yield made
