"""Where the emits, acks and fails of a component go, in one form for all who take them.

``Spout.emit`` and ``Bolt.emit`` have the parameters users know; both end in ``emit_row``, where a row hangs on an
*anchor*: the message id of a spout, the input tuples a bolt names. Whoever takes emits derives from ``Collector``: the
runtime's two collectors (``heron_instance.core``) and the recorder of ``heronry.testing``. A plain ``Collector`` stands
where none is attached yet: it takes nothing, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from heron_runtime.model.ids import DEFAULT_STREAM
from heronry.api.tuples import Tuple


class Collector:
    """Takes what a component emits, acks and fails."""

    def shortcuts(self) -> Mapping[str, Callable[..., Any]]:
        """Functions to put in place of the component's methods of these names, to save a call."""
        return {}

    def emit_row(
        self,
        values: Any,
        anchor: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """One emit. Returns the destination tasks if ``need_task_ids``."""
        raise _no_runtime("emit")

    def emit_rows(
        self, rows: Iterable[Any], anchors: Any = None, one_to_one: bool = False, stream: str = DEFAULT_STREAM
    ) -> None:
        """Many emits, all with the same anchors, or row i with anchor i if ``one_to_one``."""
        if one_to_one and anchors is not None:
            for row, anchor in zip(rows, anchors, strict=True):
                self.emit_row(row, anchor, stream)
            return
        anchors = anchors if anchors is None or isinstance(anchors, Tuple) else list(anchors)
        for row in rows:
            self.emit_row(row, anchors, stream)

    def ack(self, tup: Tuple) -> None:
        """Ack a bolt's input tuple."""
        raise _no_runtime("ack")

    def ack_many(self, tuples: Tuple | Iterable[Tuple]) -> None:
        """Ack one or several."""
        for tup in (tuples,) if isinstance(tuples, Tuple) else tuples:
            self.ack(tup)

    def fail(self, tup: Tuple, reason: Any = None) -> None:
        """Fail a bolt's input tuple."""
        raise _no_runtime("fail")

    def poll(self) -> None:
        """Let what surrounds a spout work for a moment, in the middle of a call."""


def _no_runtime(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name}() needs a running topology. To try a component on its own, attach a recorder before you call it: "
        "`from heronry.testing import Recorder; recorder = Recorder.attach(component)`, then look at "
        "recorder.emitted, recorder.acked and recorder.failed"
    )
