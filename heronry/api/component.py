"""Base classes of components: Spout, Bolt, BasicBolt, BatchBolt.

These classes contain no runtime code. ``emit``, ``ack`` and ``fail`` go to a *collector*, which the executor attaches
before ``initialize``. Where a class does not override these methods, the collector may set functions of its own on the
instance, so that ``self.emit(...)`` is a single call. Without a runtime an emit raises RuntimeError; unit tests attach
a ``heronry.testing.Recorder`` instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from heron_runtime.model.dataflow import FailReason
from heron_runtime.model.ids import DEFAULT_STREAM
from heron_runtime.model.topology import ComponentKind
from heronry.api.collector import Collector
from heronry.api.tuples import Tuple, TupleBatch

if TYPE_CHECKING:
    import logging

    from heronry.api.context import TopologyContext
    from heronry.api.spec import ComponentDeclaration, Inputs, Stream

IDEMPOTENT, AT_LEAST_ONCE = EFFECTS = ("idempotent", "at_least_once")  # values of ``Bolt.output_effect``


class KeyedMapping(MutableMapping[Any, Any]):
    """Type of ``self.keyed``: a mapping whose entries may expire."""

    @abstractmethod
    def put(self, key: Any, value: Any, ttl: float | None = None) -> None:
        """Set a value that expires ``ttl`` seconds of processing time later, unless it is set again before."""

    @abstractmethod
    def peek(self, key: Any, default: Any = None) -> Any:
        """Return a value without marking it as changed. Do not modify it."""


class RuntimeAttribute:
    """Placeholder for an attribute that the runtime sets before ``initialize``."""

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
    """Base of spouts and bolts."""

    #: One entry for each key (of a spout: for each split). Survives failures in EFFECTIVELY_ONCE topologies.
    keyed: KeyedMapping = cast(KeyedMapping, RuntimeAttribute("keyed"))
    #: State of the task as a whole. Survives failures like ``keyed``.
    state: dict[Any, Any] = cast("dict[Any, Any]", RuntimeAttribute("state"))

    component_kind: ClassVar[ComponentKind]
    #: Output streams: field names of the default stream, or ``Stream`` objects.
    outputs: Sequence[str | Stream] = ()
    #: Configuration of the component; it overrides the topology's.
    config: Mapping[str, Any] = {}

    _collector: Collector = Collector()
    _shortcuts: tuple[str, ...] = ()  # names of the collector's functions in this instance
    _component_name: str = ""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int | None = None,
        inputs: Inputs | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> ComponentDeclaration:
        """Declare this component in a topology.

        Args:
            name: Name of the component. Default: the attribute of the topology class that it is assigned to.
            par: Number of tasks. Default: ``topology.component.parallelism``.
            inputs: Streams that a bolt reads: a mapping to groupings, or a sequence (shuffled).
            config: Configuration; it overrides that of the class.
            optional_outputs: Streams in addition to ``outputs``.

        Returns:
            The declaration. ``declaration["errors"]`` names its stream ``errors`` in the inputs of other components.
        """
        from heronry.api.spec import ComponentDeclaration

        return ComponentDeclaration(cls, name, par, inputs, config, optional_outputs)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterable[str]:
        """Return the problems of a configuration, one sentence each.

        Called during submit on the submitting machine. Check only what is known there.

        Args:
            config: The configuration of the topology, overridden by that of the component.
        """
        return ()

    @property
    def log(self) -> logging.Logger:
        """Logger of the task; it writes to the log of the instance."""
        import logging  # here, since a definition is made without a line of log

        return logging.getLogger(self._component_name or type(self).__name__)

    @property
    def logger(self) -> logging.Logger:
        """Alias of ``log``."""
        return self.log

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Open files and connections. Called once, in the process of the task, before any other method.

        Args:
            config: The configuration of the topology, overridden by that of the component.
            context: The place of the task in the topology; registers metrics and hooks.
        """

    def close(self) -> None:
        """Release resources. Called once at a clean stop; not called when the process is killed."""

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        """React to a complete checkpoint: records from before it are not replayed."""


class Spout(Component):
    """Source of tuples. Derive from it, set ``outputs`` and define ``next_tuple``."""

    component_kind = ComponentKind.SPOUT

    def next_tuple(self) -> None:
        """Emit the available tuples and return; emit nothing if none is available.

        A call may last indefinitely (``for message in consumer: self.emit(...)``). Its tuples are sent within
        ``topology.flush.interval.ms``, and an emit waits during backpressure. ``ack`` and ``fail`` are not called
        before it returns, unless it calls ``poll``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no next_tuple: a spout must define it")

    def ack(self, tup_id: Any) -> None:
        """Handle success: the tuple emitted with this id and all tuples derived from it are processed."""

    def fail(self, *args: Any, **kwargs: Any) -> None:
        """Handle failure of the tuple emitted with an id, or of a tuple derived from it.

        Define it as ``fail(self, tup_id)``, or as ``fail(self, tup_id, reason)`` to receive the ``FailReason``.
        """

    def splits(self) -> Iterable[str | tuple[str, int]]:
        """Return the parts of the input that can be read in parallel, as names or (name, number) pairs.

        A spout that defines this keeps a position for each split in ``self.keyed[split]``, and reads the splits that
        ``owned_splits`` returns.
        """
        return ()

    def owned_splits(self) -> list[str]:
        """Return the splits assigned to this task. Calls ``splits``."""
        owned: list[str] = cast(Any, self.keyed).owned()  # only the mapping of a spout has it
        return owned

    def at_end(self) -> bool:
        """Return True once a bounded source is exhausted.

        Called after ``next_tuple`` has emitted nothing. When all spout tasks return True and all their tuples are
        processed, the topology is *finished*. ``next_tuple`` is still called.
        """
        return False

    def activate(self) -> None:
        """Start or resume reading: the topology has been activated."""

    def deactivate(self) -> None:
        """Pause: the topology has been deactivated. ``next_tuple`` is not called until ``activate``."""

    def emit(
        self,
        values: Sequence[Any] | None = None,
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
        tup: Sequence[Any] | None = None,
    ) -> list[int] | None:
        """Emit one tuple.

        Args:
            values: One value for each field of the stream.
            tup_id: Id of the tuple. With an id it is tracked: ``ack`` or ``fail`` is called with it later.
            stream: Name of the output stream.
            direct_task: Receiving task, for direct streams.
            need_task_ids: Whether to return the receiving tasks.
            tup: Alias of ``values``.

        Returns:
            The receiving tasks if ``need_task_ids``, else None.

        Raises:
            ValueError: Wrong number of values, or unknown stream.
            UnsupportedKey: A grouping key without a stable hash.
        """
        return self._collector.emit_row(tup if values is None else values, tup_id, stream, direct_task, need_task_ids)

    def poll(self) -> None:
        """Call ``ack`` and ``fail`` for settled tuples, and stop if a stop was requested. Does not block.

        For use in ``next_tuple`` calls that last.
        """
        self._collector.poll()

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        tup_ids: Iterable[Any] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit many tuples at once, which costs less than one ``emit`` each.

        Args:
            rows: The values of each tuple.
            tup_ids: One id for each row, to track the tuples.
            stream: Name of the output stream.
        """
        self._collector.emit_rows(rows, tup_ids, one_to_one=True, stream=stream)


class Bolt(Component):
    """Processing step. Derive from it, define ``process``, and ack or fail each tuple."""

    component_kind = ComponentKind.BOLT

    auto_anchor: bool = False
    auto_ack: bool = False
    exception_policy: str = "restart"
    #: Effect of a bolt without readers in an EFFECTIVELY_ONCE topology: ``IDEMPOTENT`` if repeating its work changes
    #: nothing outside, ``AT_LEAST_ONCE`` if repeated output after a failure is acceptable.
    output_effect: str = ""
    #: Stream for tuples that ``process`` raises on, in an EFFECTIVELY_ONCE topology (``DeadLetter``).
    dead_letters: str = ""

    def process(self, tup: Tuple) -> None:
        """Process one tuple."""
        raise NotImplementedError(f"{type(self).__name__} has neither process nor process_batch: define one of them")

    def process_tick(self, tup: Tuple) -> None:
        """Do periodic work. Called every ``topology.tick.tuple.freq.secs`` (or ``.ms``), between tuples."""

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Return True for the tuples that ``process_tick`` receives."""
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
        """Emit one tuple.

        Args:
            values: One value for each field of the stream.
            stream: Name of the output stream.
            anchors: Input tuples whose tuple trees the new tuple joins.
            direct_task: Receiving task, for direct streams.
            need_task_ids: Whether to return the receiving tasks.
            tup: Alias of ``values``.

        Returns:
            The receiving tasks if ``need_task_ids``, else None.

        Raises:
            ValueError: Wrong number of values, unknown stream, or an anchor that is already acked or failed.
            UnsupportedKey: A grouping key without a stable hash.
        """
        return self._collector.emit_row(tup if values is None else values, anchors, stream, direct_task, need_task_ids)

    def emit_many(
        self,
        rows: Iterable[Sequence[Any]],
        stream: str = DEFAULT_STREAM,
        anchors: Tuple | Iterable[Tuple] | None = None,
        one_to_one: bool = False,
    ) -> None:
        """Emit many tuples at once, which costs less than one ``emit`` each.

        Args:
            rows: The values of each tuple.
            stream: Name of the output stream.
            anchors: Input tuples whose tuple trees the new tuples join.
            one_to_one: Whether row i joins the trees of anchor i alone, instead of all.
        """
        self._collector.emit_rows(rows, anchors, one_to_one, stream)

    def ack(self, tup: Tuple) -> None:
        """Mark a tuple as processed. Emit all tuples anchored to it before."""
        self._collector.ack(tup)

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        """Ack many tuples. A whole ``TupleBatch``, also of an earlier call, is acked in one step."""
        self._collector.ack_many(tuples)

    def fail(self, tup: Tuple, reason: str | BaseException | None = None) -> None:
        """Fail the tuple trees of a tuple immediately; their spouts receive ``reason``."""
        self._collector.fail(tup, reason)


class BasicBolt(Bolt):
    """Bolt with automatic anchoring and acks.

    Each emit is anchored to the current tuple, which is acked when ``process`` returns and failed when it raises.
    """

    auto_anchor = True
    auto_ack = True
    exception_policy = "fail"


class BatchBolt(Bolt):
    """Bolt that receives batches of tuples.

    Pass ``anchors=`` to emits. When ``process_batch`` returns, each tuple that is neither acked nor failed is
    acked; when it raises, these tuples are failed.
    """

    auto_ack = True
    exception_policy = "fail"

    def process_batch(self, tuples: TupleBatch) -> None:
        """Process tuples of one stream, in order. Iterate them, or use ``tuples.rows`` or ``tuples.column(name)``."""
        raise NotImplementedError(f"{type(self).__name__} has no process_batch: a BatchBolt must define it")


_BASE_OF: dict[ComponentKind, type[Component]] = {ComponentKind.SPOUT: Spout, ComponentKind.BOLT: Bolt}

# Operations of the runtime on a component. They are functions because user classes may define methods of any name.


def bind_state(component: Component, keyed: Any, state: Any) -> None:
    """Set ``keyed`` (unless it is None) and ``state`` of a component, except where its class defines the attribute."""
    for name, given in (("keyed", keyed), ("state", state)):
        if given is not None and isinstance(getattr(type(component), name), RuntimeAttribute):
            setattr(component, name, given)


def is_state_replaced(component: Component, state: Any) -> bool:
    """Return True if user code has assigned another object to ``component.state``, which no checkpoint stores."""
    return isinstance(type(component).state, RuntimeAttribute) and component.state is not state


def bind_collector(component: Component, collector: Collector, name: str = "") -> None:
    """Send the emits, acks and fails of a component to a collector. ``name`` is the name of the component."""
    component._collector = collector
    component._component_name = name
    for method in component._shortcuts:  # set by an earlier collector; vars() would slow down all attributes of users
        delattr(component, method)
    mine, base = type(component), _BASE_OF[component.component_kind]
    offered = collector.shortcuts().items()
    shortcuts = {method: call for method, call in offered if getattr(mine, method) is getattr(base, method)}
    component._shortcuts = tuple(shortcuts)
    for method, call in shortcuts.items():
        setattr(component, method, call)


__all__ = ["BasicBolt", "BatchBolt", "Bolt", "Component", "FailReason", "Spout", "Tuple", "TupleBatch"]
