"""Unauthenticated requests: permission declared on every path, and bounded audit records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from heron_apiserver import audit as audit_module
from heron_apiserver.access import Permission
from heron_apiserver.audit import AuditLog
from heron_apiserver.routes import packages, server, submit, tokens, topologies
from heron_apiserver.routing import OPEN_PATHS, AuthorizedRoute, requires
from heron_control.web.tokens import MAX_KINDS, WINDOW_SECONDS, Kind, Repeats

kinds = st.builds(Kind, st.sampled_from(["nobody", "read"]), st.integers(0, 30).map(str), st.sampled_from([401, 403]))
arrivals = st.lists(st.tuples(st.floats(0, 50), kinds), max_size=200)


@pytest.mark.parametrize("module", [packages, server, submit, tokens, topologies])
def test_every_path_declares_its_permission_or_is_open(module: object) -> None:
    router: APIRouter = vars(module)["router"]
    for route in router.routes:
        assert isinstance(route, AuthorizedRoute)
        assert (route.permission is None) == (route.path in OPEN_PATHS)
        if not {"GET", "HEAD"} & (route.methods or set()):
            assert route.permission is (Permission.TOKENS if module is tokens else Permission.CHANGE)
        if module is tokens:
            assert route.permission is Permission.TOKENS


def test_path_without_a_permission_cannot_be_declared() -> None:
    router = APIRouter(route_class=AuthorizedRoute)
    with pytest.raises(ValueError, match="declares 0 permissions"):
        router.get("/secrets")(lambda: None)
    with pytest.raises(ValueError, match="declares 1 permissions"):
        router.get("/healthz", dependencies=[requires(Permission.LOOK)])(lambda: None)
    router.get("/secrets", dependencies=[requires(Permission.LOOK)])(lambda: None)
    assert isinstance(router.routes[0], APIRoute)


@given(arrivals)
def test_every_refusal_is_recorded_or_counted_once(came: list[tuple[float, Kind]]) -> None:
    repeats = Repeats()
    now, written, counted, lines = 0.0, 0, 0, 0
    for pause, kind in came:
        now += pause
        over = repeats.take(now)
        lines += len(over)
        counted += sum(count for _, count in over)
        written += repeats.first(kind, now)
    over = repeats.take()
    counted += sum(count for _, count in over)
    assert written + counted == len(came)
    assert repeats.take() == []
    assert written + lines <= 2 * (MAX_KINDS + 1) * (1 + now // WINDOW_SECONDS + 1)


def test_many_refusals_use_few_lines_and_keep_other_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(audit_module.time, "monotonic", lambda: clock[0])
    audit = AuditLog(tmp_path / "audit.jsonl")
    for _ in range(300):
        audit.write("restart", who="nobody", source="192.0.2.1", result=401, message="there is no token")
        audit.write("restart", who="admin", source="192.0.2.1", result=422) if _ < 2 else None
    clock[0] = WINDOW_SECONDS + 1
    audit.flush_repeats()
    for number in range(1000):
        audit.write("kill", who="nobody", source=str(number), result=401)
    audit.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["who"], line["result"]) for line in lines[:3]] == [("nobody", 401), ("admin", 422), ("admin", 422)]
    assert [line["repeats"] for line in lines if "repeats" in line] == [299, 1000 - MAX_KINDS]
    assert len(lines) == 3 + 1 + MAX_KINDS + 1
