"""Pure decisions of the API server: permissions, throttling, request ids, submissions, recovery."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_apiserver.access import PERMISSIONS, Caller, CallerRole, Permission, parse_bearer_token, secrets_equal
from heron_apiserver.recovery import Folder, RecoveryStep, plan_recovery, unused_packages
from heron_apiserver.request_log import (
    MAX_AGE_SECONDS,
    MAX_ENTRIES,
    RequestIdReused,
    RequestInProgress,
    RequestRecord,
    RequestTable,
    is_request_id,
)
from heron_apiserver.submit_request import MAX_COMPONENTS, SubmitRejected, SubmitRequest, check_definition, parse_fields
from heron_control.web.tokens import ALLOWED, MAX_ADDRESSES, REFILL_SECONDS, Throttle, Token, digest_of, find_token
from heron_runtime.model.topology import (
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
    TopologyState,
)
from tests.support.stub_processes import definition

TOKENS = [
    Token("admin", CallerRole.ADMIN, digest_of("a" * 43)),
    Token("ci", CallerRole.SUBMIT, digest_of("r" * 43), 9.0),
]


def test_permissions_of_every_role_are_explicit() -> None:
    table = {(role, right): Caller(role).has_permission(right) for role in CallerRole for right in Permission}
    assert {pair for pair, may in table.items() if may} == {
        *((CallerRole.ADMIN, permission) for permission in Permission),
        (CallerRole.SUBMIT, Permission.LOOK),
        (CallerRole.SUBMIT, Permission.CHANGE),
        (CallerRole.SUBMIT, Permission.CODE),
        (CallerRole.READ, Permission.LOOK),
        (CallerRole.TOPOLOGY, Permission.CODE),
    }
    assert set(PERMISSIONS) == set(CallerRole)


@given(st.text(max_size=60))
def test_only_the_exact_token_is_known(text: str) -> None:
    assert find_token(text, TOKENS) is None
    assert not secrets_equal(text, "")
    assert [find_token(letter * 43, TOKENS) for letter in "ar"] == TOKENS
    assert [TOKENS[1].expired(now) for now in (8.9, 9.0)] == [False, True]
    assert not TOKENS[0].expired(1e12)


def test_tokens_are_accepted_as_bearer_only() -> None:
    assert parse_bearer_token("Bearer abc") == parse_bearer_token("bearer  abc ") == "abc"
    assert (
        parse_bearer_token("Basic abc")
        == parse_bearer_token("abc")
        == parse_bearer_token("")
        == parse_bearer_token("Bearer")
        == ""
    )
    assert str(Caller(CallerRole.TOPOLOGY, "words-1")) == "topology:words-1"
    assert str(Caller(CallerRole.SUBMIT, token="ci")) == "submit:ci"
    assert str(Caller(CallerRole.ADMIN, token="admin")) == "admin"


def test_wrong_tokens_are_throttled_and_addresses_bounded() -> None:
    throttle = Throttle()
    assert [throttle.wrong("a", 0.0) for _ in range(ALLOWED + 2)] == [True] * ALLOWED + [False] * 2
    assert throttle.wrong("b", 0.0)
    assert throttle.wrong("a", REFILL_SECONDS)
    assert not throttle.wrong("a", REFILL_SECONDS)
    for number in range(MAX_ADDRESSES + 10):
        throttle.wrong(str(number), 1.0)
    throttle.check()


def entry(request_id: str = "1", mark: str = "x", at: float = 0.0, answer: str | None = None) -> RequestRecord:
    return RequestRecord(request_id, mark, "words", "words-1", at, answer)


def test_request_is_executed_once() -> None:
    book = RequestTable()
    assert book.begin(entry()) is None
    with pytest.raises(RequestInProgress):
        book.begin(entry())
    book.succeeded(entry(answer="done"))
    assert book.begin(entry()) == "done"
    with pytest.raises(RequestIdReused):
        book.begin(entry(mark="y"))


def test_failed_request_may_be_retried() -> None:
    book = RequestTable()
    assert book.begin(entry()) is None
    book.failed("1")
    assert book.begin(entry(mark="y")) is None


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=80))
def test_request_table_is_bounded_and_keeps_running_requests(steps: list[tuple[int, bool]]) -> None:
    book = RequestTable(entry(f"old{n}", at=-float(n), answer="a") for n in range(MAX_ENTRIES))
    under_way = set()
    for number, finish in steps:
        request = entry(str(number), at=float(number))
        if str(number) not in under_way and str(number) not in {e.request_id for e in book}:
            assert book.begin(request) is None
            under_way.add(str(number))
        elif finish and str(number) in under_way:
            book.succeeded(replace(request, answer="b"))
            under_way.discard(str(number))
        book.expire(100.0)
        kept = {e.request_id for e in book}
        assert under_way <= kept
        assert len(kept - under_way) <= MAX_ENTRIES
    book.expire(MAX_AGE_SECONDS + 1000)
    assert {e.request_id for e in book} == under_way


def test_request_ids_are_safe_in_logs() -> None:
    assert is_request_id("words-4f2a")
    for bad in ("", "a" * 129, "a\nb", "ä", "a\0"):
        assert not is_request_id(bad)


FIELDS = {"name": "words", "cluster": "box", "role": "ads", "environment": "prod"}
FILES = {"definition", "topology"}


def problems(fields: Mapping[str, str], files: set[str] | None = None) -> SubmitRejected:
    with pytest.raises(SubmitRejected) as caught:
        parse_fields(fields, FILES if files is None else files, "box")
    return caught.value


def test_valid_request_fields_are_parsed() -> None:
    found = parse_fields({**FIELDS, "state": "paused", "settings": '{"heron.logging.level": "DEBUG"}'}, FILES, "box")
    assert (found.name, found.environ, found.state) == ("words", "prod", TopologyState.PAUSED)
    assert found.settings == {"heron.logging.level": "DEBUG"}
    assert parse_fields({**FIELDS, "package": "d" * 64}, {"definition"}, "box").package == "d" * 64
    assert (found.without_state, found.timeout_seconds) == (False, 120.0)
    other = parse_fields({**FIELDS, "replace": "true", "without_state": "true", "timeout_seconds": "7.5"}, FILES, "box")
    assert (other.replace, other.without_state, other.timeout_seconds) == (True, True, 7.5)


def test_missing_fields_are_all_named() -> None:
    assert set(problems({}, set()).missing) == {"name", "cluster", "role", "environment", "definition", "topology"}
    assert problems({**FIELDS, "package": "d" * 64}).missing == ("topology",)  # both count as missing


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../up"}, {"role": "a/b"}, {"environment": "a b"}, {"name": "$(reboot)"}, {"cluster": "other"},
        {"name": "a\nb"}, {"state": "killed"}, {"replace": "maybe"}, {"dry_run": "1"}, {"nonsense": "x"},
        {"settings": "["}, {"settings": "[1]"}, {"settings": "[" * 100_000}, {"settings": '{"topology.debug": true}'},
        {"settings": '{"heron.scheduler": "local"}'}, {"settings": '{"heron.logging.level": "LOUD"}'},
        {"settings": '{"heron.state.url": "files:///etc"}'}, {"settings": '{"heron.state.credential.file": "/etc/x"}'},
        {"without_state": "1"}, *({"timeout_seconds": seconds} for seconds in ("0", "nan", "2000", "soon")),
        {"user": "a" * 129}, {"user": "a\nb"}, {"config.override": "1"},
    ],
)  # fmt: skip
def test_invalid_fields_are_rejected(change: dict[str, str]) -> None:
    assert problems({**FIELDS, **change}).problems


READ = SubmitRequest("words", "box", "ads", "prod", "", TopologyState.RUNNING)


def sound() -> TopologyDefinition:
    spout, bolt = definition().components
    grouping = GroupingSpec(GroupingKind.SHUFFLE)
    return replace(definition(), components=(spout, replace(bolt, inputs=(InputSpec("word", "default", grouping),))))


def with_config(**config: Any) -> TopologyDefinition:
    return replace(sound(), config={key.replace("_", "."): value for key, value in config.items()})


def test_valid_definition_is_packed() -> None:
    packing = check_definition(sound(), READ)
    assert [i.component for i in packing.instances()] == ["word", "count", "count"]


def cyclic() -> TopologyDefinition:
    made = sound()
    spout, bolt = made.components
    loop = InputSpec("count", "default", GroupingSpec(GroupingKind.SHUFFLE))
    return replace(made, components=(spout, replace(bolt, outputs=(StreamSchema(),), inputs=(*bolt.inputs, loop))))


BAD: dict[str, TopologyDefinition] = {
    "cycle": cyclic(),
    "other name": replace(sound(), name="other", id="other-1"),
    "id of another": replace(sound(), id="other-1"),
    "id with a path": replace(sound(), id="words/../../x"),
    "no spout": replace(sound(), components=sound().components[1:]),
    "nothing": replace(sound(), components=()),
    "unknown key": with_config(topology_nonsense=1),
    "operator's key": with_config(heron_logging_level="LOUD"),
    "too many": replace(sound(), components=sound().components * MAX_COMPONENTS),
    "tasks without end": replace(
        sound(), components=(replace(sound().components[0], parallelism=1 << 30), sound().components[1])
    ),
    "unsafe component": replace(
        sound(), components=(replace(sound().components[0], name="<img onerror=x>"), sound().components[1])
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_definition_is_rejected(what: str) -> None:
    with pytest.raises(SubmitRejected) as caught:
        check_definition(BAD[what], READ)
    assert json.dumps(caught.value.problems)


IDS = st.sampled_from(["", "words-1", "words-2"])
FOLDERS = st.lists(
    st.builds(Folder, st.uuids().map(str), st.just("words"), IDS, st.booleans(), st.sampled_from("pq")), max_size=6
)


@given(FOLDERS, IDS)
def test_recovery_keeps_exactly_the_stored_submissions(folders: list[Folder], stored: str) -> None:
    steps = plan_recovery(folders, {"words": stored} if stored else {})
    assert sorted(f.path for f, _ in steps) == sorted(f.path for f in folders)
    for folder, step in steps:
        lives = bool(stored) and folder.topology_id == stored
        assert (step in (RecoveryStep.START, RecoveryStep.FINISH_SUBMIT)) == lives
        assert (step is RecoveryStep.DISCARD) == (folder.staged and not lives)
        assert (step is RecoveryStep.LEAVE) == (not folder.staged and not folder.topology_id)
    staged = [folder.staged for folder, _ in steps]
    assert staged == sorted(staged, reverse=True)  # staged submissions take their place before that place is examined


@given(FOLDERS)
def test_recovery_leaves_topologies_of_an_unreadable_store(folders: list[Folder]) -> None:
    assert all(step is RecoveryStep.LEAVE for _, step in plan_recovery(folders, {}, {"words"}))


@given(st.sets(st.sampled_from("pqrs")), FOLDERS, st.sets(st.sampled_from("pqrs")))
def test_packages_in_use_are_kept(packages: set[str], folders: list[Folder], held: set[str]) -> None:
    gone = unused_packages(packages, folders, held)
    assert set(gone) == packages - {f.package for f in folders} - held
