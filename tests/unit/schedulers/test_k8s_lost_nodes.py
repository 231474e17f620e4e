"""Lost nodes: a silent node is lost at once, or after a grace period if the API server was unavailable.

The properties hold for all histories of nodes whose kubelets are silent or not, observed at any intervals.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from heron_control.schedulers.k8s_plan import AWAY_SECONDS, GRACE_SECONDS, Node, Sight

NAMES = ("n1", "n2")
# Seconds since the previous observation and the silent nodes; above AWAY_SECONDS, the API server was unavailable.
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
    """Return time, silent nodes and lost nodes of each observation."""
    sight, now, found = Sight(), 0.0, []
    for seconds, silent in history:
        now += seconds
        sight, judged = sight.look({name: Node(name in silent, 2.0) for name in NAMES}, now)
        found.append((now, silent, frozenset(name for name, node in judged.items() if node.lost)))
    return found


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_ready_node_and_node_in_its_grace_period_are_not_lost(
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
def test_silent_node_is_lost_after_one_grace_period(
    history: list[tuple[float, frozenset[str]]],
) -> None:
    began: dict[str, float] = {}
    for now, silent, judged in lost(history):
        began = {name: began.get(name, now) for name in silent}
        assert judged >= {name for name, first in began.items() if now >= first + GRACE_SECONDS}


@given(HISTORIES)
@example(SILENT_BEFORE)
@example(SILENT_TWICE)
def test_lost_node_stays_lost_until_it_is_ready(history: list[tuple[float, frozenset[str]]]) -> None:
    for (_, _, before), (_, silent, judged) in pairwise(lost(history)):
        assert judged >= before & silent


def test_node_that_becomes_silent_while_observed_is_lost_at_once() -> None:
    quiet: list[tuple[float, frozenset[str]]] = [(2.0, frozenset())] * 30
    assert lost([*quiet, (2.0, frozenset({"n1"}))])[-1][2] == {"n1"}


def test_short_api_server_outage_loses_no_node() -> None:
    """As observed in a real cluster: both nodes are unknown after the outage, and ready some seconds later."""
    quiet: list[tuple[float, frozenset[str]]] = [(2.0, frozenset())] * 30
    late: list[tuple[float, frozenset[str]]] = [(60.0, frozenset()), *[(2.0, frozenset(NAMES))] * 7]
    history = [*quiet, *late, *quiet]
    assert not any(judged for _, _, judged in lost(history))
    assert lost([*quiet, *late, *[(2.0, frozenset({"n2"}))] * 13])[-1][2] == {"n2"}


def test_other_facts_of_a_node_are_kept() -> None:
    _, judged = Sight().look({"n1": Node(True, 3.5), "n2": Node(False, 1.5)}, 7.0)
    assert judged == {"n1": Node(False, 3.5), "n2": Node(False, 1.5)}, "who has just begun to look gives them time"
