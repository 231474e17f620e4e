"""When a node that nobody hears of counts as lost: at once, or after the time that is given when Kubernetes was away.

The laws hold for every history: of nodes whose kubelets speak or do not, seen by looks in any distances.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from heron_control.schedulers.k8s_plan import AWAY_SECONDS, GRACE_SECONDS, Node, Sight

NAMES = ("n1", "n2")
# Seconds since the look before, and who is silent then; a distance above AWAY_SECONDS is an API server that was away.
HISTORIES = st.lists(
    st.tuples(
        st.one_of(st.floats(0.1, AWAY_SECONDS), st.floats(AWAY_SECONDS + 0.1, 300.0)),
        st.frozensets(st.sampled_from(NAMES)),
    ),
    max_size=30,
)
_N1, _NOBODY = frozenset({"n1"}), frozenset[str]()
SILENT_BEFORE = [*[(2.0, _N1)] * 25, (60.0, _N1)]
SILENT_TWICE = [(2.0, _N1), (2.0, _NOBODY), (60.0, _N1)]


def lost(history: list[tuple[float, frozenset[str]]]) -> list[tuple[float, frozenset[str], frozenset[str]]]:
    """Of each look its time, who was silent, and who was taken for lost."""
    sight, now, found = Sight(), 0.0, []
    for seconds, silent in history:
        now += seconds
        sight, judged = sight.look({name: Node(name in silent, 2.0) for name in NAMES}, now)
        found.append((now, silent, frozenset(name for name, node in judged.items() if node.lost)))
    return found


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_nobody_is_lost_who_speaks_or_whom_the_api_server_has_just_left_alone(
    history: list[tuple[float, frozenset[str]]],
) -> None:
    back, before = float("-inf"), float("-inf")
    since: dict[str, float] = {}
    for now, silent, judged in lost(history):
        back = now if now - before > AWAY_SECONDS else back
        before = now
        assert judged <= silent
        since = {name: since.get(name, back) for name in silent}
        assert not [name for name in judged if now < since[name] + GRACE_SECONDS]


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_a_silent_node_is_lost_after_one_grace_however_often_the_api_server_goes(
    history: list[tuple[float, frozenset[str]]],
) -> None:
    began: dict[str, float] = {}
    for now, silent, judged in lost(history):
        began = {name: began.get(name, now) for name in silent}
        assert judged >= {name for name, first in began.items() if now >= first + GRACE_SECONDS}


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_a_node_that_is_lost_stays_so_until_it_speaks(history: list[tuple[float, frozenset[str]]]) -> None:
    for (_, _, before), (_, silent, judged) in pairwise(lost(history)):
        assert judged >= before & silent


def test_a_node_that_falls_silent_while_the_api_server_answers_is_lost_at_once() -> None:
    quiet: list[tuple[float, frozenset[str]]] = [(2.0, frozenset())] * 30
    assert lost([*quiet, (2.0, frozenset({"n1"}))])[-1][2] == {"n1"}


def test_a_minute_without_the_api_server_costs_nothing_where_kubelets_come_back() -> None:
    """As a real one was seen: both nodes unknown when it is back, and ready some seconds later."""
    quiet: list[tuple[float, frozenset[str]]] = [(2.0, frozenset())] * 30
    late: list[tuple[float, frozenset[str]]] = [(60.0, frozenset()), *[(2.0, frozenset(NAMES))] * 7]
    history = [*quiet, *late, *quiet]
    assert not any(judged for _, _, judged in lost(history))
    assert lost([*quiet, *late, *[(2.0, frozenset({"n2"}))] * 13])[-1][2] == {"n2"}


def test_what_is_known_of_a_node_is_kept() -> None:
    _, judged = Sight().look({"n1": Node(True, 3.5), "n2": Node(False, 1.5)}, 7.0)
    assert judged == {"n1": Node(False, 3.5), "n2": Node(False, 1.5)}, "who has just begun to look gives them time"
