"""Every kind of failure has a status, and what derives from it has the same."""

from __future__ import annotations

import pytest

from heron_runtime import failures
from heron_runtime.failures import Failure, NotFound, Unavailable
from heron_runtime.state.topologies import NoSuchTopology

KINDS = [kind for kind in vars(failures).values() if isinstance(kind, type) and issubclass(kind, Failure)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not Failure])
def test_no_kind_is_a_fault_of_the_server(kind: type[Failure]) -> None:
    class Derived(kind):  # type: ignore[misc, valid-type]
        pass

    assert Derived("x").http_status == kind("x").http_status
    assert 400 <= kind("x").http_status < 500 or kind("x").http_status == 503


def test_known_ones() -> None:
    assert [e.http_status for e in (NoSuchTopology("t"), NotFound(), Unavailable(), Failure())] == [404, 404, 503, 500]
