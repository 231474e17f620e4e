"""schemathesis against the OpenAPI description of a real tracker: no answer is a 500 or undocumented."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from heron_tracker.application import make_app
from heron_tracker.tracker import Tracker
from tests.integration.heron_tracker.conftest import PLACE
from tests.support.tracker_process import TrackerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of the libraries that schemathesis loads
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance  # a schema cannot say "not before starttime"

# Warnings of schemathesis about other libraries are ignored: the test is about the tracker.
pytestmark = [pytest.mark.core, pytest.mark.filterwarnings("default")]
bounded = settings(
    max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
)


# A stream does not end: /events has its own tests.
SCHEMA = schemathesis.openapi.from_dict(make_app(Tracker({})).openapi())
OPERATIONS = [found.ok() for found in SCHEMA.exclude(path="/events").get_all_operations()]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_any_request_gets_a_documented_answer(operation: Any, rest: TrackerProcess) -> None:
    @given(operation.as_strategy())
    @bounded
    def check(case: Any) -> None:
        case.call_and_validate(base_url=rest.url, timeout=60, excluded_checks=[positive_data_acceptance])

    check()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_any_request_for_an_existing_topology_gets_a_documented_answer(operation: Any, rest: TrackerProcess) -> None:
    """With an existing topology, the other arguments reach the handlers."""
    known: dict[str, Any] = {**PLACE, "component": "count", "container": 1}

    @given(operation.as_strategy())
    @bounded
    def check(case: Any) -> None:
        query = case.query or {}
        query.pop("role", None)
        query.update({name: value for name, value in known.items() if name in query})
        response = case.call(base_url=rest.url, timeout=60)
        assert response.status_code in (200, 304, 404, 422)

    check()
