"""The classes a user derives from: Spout, Bolt, BasicBolt, BatchBolt.

They hold no machinery. ``emit``, ``ack`` and ``fail`` go to a *collector* that the executor attaches before
``initialize``; where a class does not override them, the collector may put functions of its own into the instance, so
that ``self.emit(...)`` is one call. Without a runtime an emit raises RuntimeError and names ``Recorder``, which stands
in for it in unit tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from heron_runtime.model.dataflow import FailReason
from heron_runtime.model.ids import DEFAULT_STREAM
from heron_runtime.model.topology import ComponentKind
from heronry.api.collector import Collector
from heronry.api.tuples import Tuple, TupleBatch

if TYPE_CHECKING:
    import logging

IDEMPOTENT, AT_LEAST_ONCE = EFFECTS = ("idempotent", "at_least_once")  # of ``Bolt.output_effect``


class _NotThere:
    """In place of an attribute that the runtime gives."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, component: Any, kind: type) -> Any:
        if component is None:
            return self
        whom = " to a bolt with an input grouped by fields, or a spout with splits()" if self._name == "keyed" else ""
        raise AttributeError(
            f"{kind.__name__} has no self.{self._name} here: the runtime gives it{whom} before initialize(); in a unit "
            "test Recorder.attach gives a plain dict"
        )


class Component:
    """What spouts and bolts share."""

    #: One entry for each key (a spout: for each split); kept across faults where the topology is EFFECTIVELY_ONCE.
    keyed: Any = _NotThere("keyed")
    #: The task's own mapping; kept as ``keyed`` is.
    state: Any = _NotThere("state")

    component_kind: ClassVar[ComponentKind]
    outputs: Any = ()
    config: Any = {}  # users write plain dicts in class bodies

    _collector: Collector = Collector()
    _shortcuts: tuple[str, ...] = ()  # names of the collector's functions in this instance
    _component_name: str = ""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int | None = None,
        inputs: Any = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Any = None,
    ) -> Any:
        """This component in a topology: how many tasks (``par``), what it reads (``inputs``), its configuration."""
        from heronry.api.spec import ComponentDeclaration

        return ComponentDeclaration(cls, name, par, inputs, config, optional_outputs)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterable[str]:
        """What is missing or wrong in this configuration (the topology's with the component's own laid over it), a
        sentence each. Asked at submit, on the machine that submits, without what only a running task can see."""
        return ()

    @property
    def log(self) -> logging.Logger:
        """Goes to the instance's log."""
        import logging  # here, since a definition is made without a line of log

        return logging.getLogger(self._component_name or type(self).__name__)

    @property
    def logger(self) -> logging.Logger:
        """The same as ``log``."""
        return self.log

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Called once, after the fork, before anything else. Open files and connections here."""

    def close(self) -> None:
        """Called once at a clean stop. Not called when the process is killed."""

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        """This checkpoint is complete: whatever came before it will not come again."""


class Spout(Component):
    """A source. Derive, set ``outputs``, write ``next_tuple``."""

    component_kind = ComponentKind.SPOUT

    def next_tuple(self) -> None:
        """Emit what there is, one tuple or several, and return; emit nothing if there is nothing.

        A call may last, even for ever (``for message in consumer: self.emit(...)``): what it emits leaves within
        ``topology.flush.interval.ms``, and an emit waits while the topology can take no more. But ``ack`` and ``fail``
        are not called before it returns, unless it calls ``poll``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no next_tuple: a spout must define it")

    def ack(self, tup_id: Any) -> None:
        """The tuple emitted with this id and all that came of it are processed."""

    def fail(self, *args: Any, **kwargs: Any) -> None:
        """The tuple emitted with this id, or something that came of it, has failed.

        Define it as ``fail(self, tup_id)`` or as ``fail(self, tup_id, reason)``; the second is told why
        (``FailReason``).
        """

    def splits(self) -> Iterable[str | tuple[str, int]]:
        """What can be read side by side, by name or as (name, number). A spout that defines it keeps a position for
        each split in ``self.keyed[split]``, and reads those that ``owned_splits`` names."""
        return ()

    def owned_splits(self) -> list[str]:
        """The splits that this task reads now. Asks ``splits`` anew."""
        owned: list[str] = self.keyed.owned()
        return owned

    def at_end(self) -> bool:
        """True once nothing is left to read, and nothing will come: the end of a bounded source. Asked when
        ``next_tuple`` had nothing; when all spout tasks say so and what they read is through, the topology is shown as
        *finished*. ``next_tuple`` is called as before."""
        return False

    def activate(self) -> None:
        """The topology runs, or runs again."""

    def deactivate(self) -> None:
        """The topology is paused by its owner: ``next_tuple`` is not called until ``activate``."""

    def emit(
        self,
        values: Sequence[Any] | None = None,
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Sequence[Any] | None = None,
    ) -> list[int] | None:
        """Emit one tuple. With ``tup_id`` it is tracked: ``ack`` or ``fail`` will be called with that id.

        ``values`` may also be given as ``tup``. Returns the destination tasks if ``need_task_ids``. Raises ValueError
        for a wrong number of values or an unknown stream, UnsupportedKey for a grouping key that has no stable hash.
        """
        return self._collector.emit_row(tup if values is None else values, tup_id, stream, direct_task, need_task_ids)

    def poll(self) -> None:
        """Within a call that lasts: have ``ack`` and ``fail`` called for what has been settled, and obey a stop. Waits
        for nothing."""
        self._collector.poll()

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        tup_ids: Iterable[Any] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit many tuples at once, which is cheaper than one by one. ``tup_ids`` has one id for each row."""
        self._collector.emit_rows(rows, tup_ids, one_to_one=True, stream=stream)


class Bolt(Component):
    """A step. Derive, write ``process`` (or ``process_batch``), ack or fail each tuple."""

    component_kind = ComponentKind.BOLT

    auto_anchor: ClassVar[bool] = False
    auto_ack: ClassVar[bool] = False
    exception_policy: ClassVar[str] = "restart"
    #: Where the topology is EFFECTIVELY_ONCE, and nobody reads the bolt: ``IDEMPOTENT`` if doing the same again changes
    #: nothing outside, ``AT_LEAST_ONCE`` if what it does may show again after a fault, and that is well so.
    output_effect: ClassVar[str] = ""
    #: Where the topology is EFFECTIVELY_ONCE: the stream for records that ``process`` raises on (``DeadLetter``).
    dead_letters: ClassVar[str] = ""

    def process(self, tup: Tuple) -> None:
        """Process one tuple."""
        raise NotImplementedError(f"{type(self).__name__} has neither process nor process_batch: define one of them")

    def process_tick(self, tup: Tuple) -> None:
        """Called each ``topology.tick.tuple.freq.secs`` (or ``.ms``), between tuples."""

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """True for what ``process_tick`` gets."""
        return tup.is_tick

    def emit(
        self,
        values: Sequence[Any] | None = None,
        stream: str = DEFAULT_STREAM,
        anchors: Tuple | Iterable[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Sequence[Any] | None = None,
    ) -> list[int] | None:
        """Emit one tuple; it joins the tuple trees of its ``anchors``.

        ``values`` may also be given as ``tup``. Returns the destination tasks if ``need_task_ids``. Raises ValueError
        for a wrong number of values, an unknown stream or an anchor that is acked or failed already, UnsupportedKey
        for a grouping key that has no stable hash.
        """
        return self._collector.emit_row(tup if values is None else values, anchors, stream, direct_task, need_task_ids)

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        stream: str = DEFAULT_STREAM,
        anchors: Tuple | Iterable[Tuple] | None = None,
        one_to_one: bool = False,
    ) -> None:
        """Emit many tuples, all with the same ``anchors``, or row i anchored to anchor i if ``one_to_one``."""
        self._collector.emit_rows(rows, anchors, one_to_one, stream)

    def ack(self, tup: Tuple) -> None:
        """This tuple is processed, and all that hangs on it has been emitted."""
        self._collector.ack(tup)

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        """Ack many tuples; for a whole ``TupleBatch``, also one of an earlier call, that is one step."""
        self._collector.ack_many(tuples)

    def fail(self, tup: Tuple, reason: str | BaseException | None = None) -> None:
        """Fail the roots of this tuple at once; the spouts are told ``reason``."""
        self._collector.fail(tup, reason)


class BasicBolt(Bolt):
    """A bolt without book-keeping: each emit is anchored to the tuple in hand, which is acked when ``process`` returns
    and failed when it raises."""

    auto_anchor = True
    auto_ack = True
    exception_policy = "fail"


class BatchBolt(Bolt):
    """A bolt that gets a batch at a time.

    Emits pass ``anchors=``. When ``process_batch`` returns, every tuple of the batch neither acked nor failed is acked;
    when it raises, those are failed.
    """

    auto_ack = True
    exception_policy = "fail"

    def process_batch(self, tuples: TupleBatch) -> None:
        """Process tuples of one stream, in order: iterate them, or use ``tuples.rows``, ``tuples.column(name)``."""
        raise NotImplementedError(f"{type(self).__name__} has no process_batch: a BatchBolt must define it")


_BASE_OF: dict[ComponentKind, type[Component]] = {ComponentKind.SPOUT: Spout, ComponentKind.BOLT: Bolt}

# What the runtime does to a component. Functions, not methods: a user's class may have methods of any name.


def bind_state(component: Component, keyed: Any, state: Any) -> None:
    """Set ``component.keyed`` (unless ``keyed`` is None) and ``component.state``, except where the user's class has
    attributes of these names itself."""
    for name, given in (("keyed", keyed), ("state", state)):
        if given is not None and isinstance(getattr(type(component), name), _NotThere):
            setattr(component, name, given)


def is_state_replaced(component: Component, state: Any) -> bool:
    """Return True if ``component.state``, which was the mapping ``state``, is now another object, which is not kept."""
    return isinstance(type(component).state, _NotThere) and component.state is not state


def bind_collector(component: Component, collector: Collector, name: str = "") -> None:
    """Send the emits, acks and fails of ``component`` to ``collector`` from now on. ``name``: the component's."""
    component._collector = collector
    component._component_name = name
    for method in component._shortcuts:  # of an earlier collector; vars() would slow every attribute of users down
        delattr(component, method)
    mine, base = type(component), _BASE_OF[component.component_kind]
    offered = collector.shortcuts().items()
    shortcuts = {method: call for method, call in offered if getattr(mine, method) is getattr(base, method)}
    component._shortcuts = tuple(shortcuts)
    for method, call in shortcuts.items():
        setattr(component, method, call)


__all__ = ["BasicBolt", "BatchBolt", "Bolt", "Component", "FailReason", "Spout", "Tuple", "TupleBatch"]
