"""HTTP statuses of failures, which derived classes inherit."""

from __future__ import annotations

import pytest

from heron_runtime import failures
from heron_runtime.failures import Failure, NotFound, Unavailable
from heron_runtime.state.topologies import NoSuchTopology

KINDS = [kind for kind in vars(failures).values() if isinstance(kind, type) and issubclass(kind, Failure)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not Failure])
def test_every_failure_maps_to_a_client_error_or_503(kind: type[Failure]) -> None:
    class Derived(kind):  # type: ignore[misc, valid-type]
        pass

    assert Derived("x").http_status == kind("x").http_status
    assert 400 <= kind("x").http_status < 500 or kind("x").http_status == 503


def test_known_failures_have_their_status() -> None:
    assert [e.http_status for e in (NoSuchTopology("t"), NotFound(), Unavailable(), Failure())] == [404, 404, 503, 500]
