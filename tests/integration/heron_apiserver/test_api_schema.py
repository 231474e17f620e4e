"""schemathesis against the OpenAPI description of a real API server: no answer is a 500 or undocumented."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from heron_apiserver.api_server import ApiServer
from heron_apiserver.application import make_app
from heron_apiserver.server import ApiServerOptions, cluster_config, prepare_home, store_and_scheduler
from heron_apiserver.tokens import TokenBook
from tests.support.api_server_process import ApiProcess, api_server

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of the libraries that schemathesis loads
    import schemathesis
    from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

# A schema cannot express valid topologies, and many wrong tokens cause 429 (see test_api_abuse).
EXCLUDED = [positive_data_acceptance, ignored_auth]
# Warnings of schemathesis about other libraries are ignored: the test is about the API server.
pytestmark = pytest.mark.filterwarnings("default")
bounded = settings(
    max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
)


def schema() -> dict[str, Any]:
    """Return the schema of an application that is never started."""
    with tempfile.TemporaryDirectory() as folder:
        home = prepare_home(Path(folder, "home"))
        options = ApiServerOptions(home, cluster="box")
        place = cluster_config(options, home)
        return make_app(ApiServer(place, *store_and_scheduler(options, place), "local", TokenBook(home))).openapi()


SCHEMA = schemathesis.openapi.from_dict(schema())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with api_server(tmp_path_factory.mktemp("schema") / "api", "--cluster", "box") as server:
        yield server


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
def test_any_request_gets_a_documented_answer(operation: Any, api: ApiProcess) -> None:
    @given(operation.as_strategy())
    @bounded
    def check(case: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {api.admin}"}
        case.call_and_validate(base_url=api.url, timeout=60, excluded_checks=EXCLUDED)

    check()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
def test_any_request_for_the_right_cluster_gets_a_documented_answer(operation: Any, api: ApiProcess) -> None:
    """With the right cluster, the other arguments reach the handlers."""

    @given(operation.as_strategy())
    @bounded
    def check(case: Any) -> None:
        if "cluster" in (case.path_parameters or {}):
            case.path_parameters.update(cluster="box", role="ads", environ="prod", name="words")
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {api.admin}"}
        answer = case.call(base_url=api.url, timeout=60)
        assert answer.status_code < 500 or answer.status_code == 503

    check()
    assert api.request("GET", "/api/v1/topologies").json() == []
