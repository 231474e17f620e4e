"""What happened to the topology, on its way from the process that knows it to the history: few, and each once.

Theory of operation. A process keeps the last happenings and how many there were, and every report carries both; so a
report that is lost or repeated changes nothing, and whoever takes reports knows which happenings are new to it, and how
many it has missed (``new_in``). Happenings of one *series* (kind, component, what) are told one by one up to
``MAX_SINGLE`` in ``WINDOW_SECONDS``, which begin with the first of them. Those beyond are told as one when the time is
over: the last one, with how many there were as ``count``. So none is lost, only told with less detail.

**Bounds.** A process tells at most ``MAX_SINGLE`` + 1 happenings of a series in a minute, of at most ``MAX_SERIES``
series (those beyond are one series of their kind), and a report has at most ``MAX_TOLD``. Texts are cut.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from heron_runtime.wire.metrics import Happening, ProcessMetrics

WINDOW_SECONDS = 60.0
MAX_SINGLE = 10
MAX_SERIES = 64
MAX_TOLD = 128
MAX_TEXT = 1000  # characters
MAX_DETAIL = 4000

Series = tuple[str, str, str]  # kind, component, what


@dataclass(slots=True)
class _Window:
    began: float
    single: int = 0
    waits: Happening | None = None


class Happenings:
    """Of one process. Times are seconds since 1970."""

    def __init__(self) -> None:
        self.count = 0  # told so far
        self._told: deque[Happening] = deque(maxlen=MAX_TOLD)
        self._windows: dict[Series, _Window] = {}

    def note(self, found: Happening, what: str = "") -> None:
        """It happened at ``found.time``."""
        self.settle(found.time)
        series = (found.kind, found.component, what)
        if series not in self._windows and len(self._windows) >= MAX_SERIES:
            series = (found.kind, "", "")
        window = self._windows.setdefault(series, _Window(found.time))
        found = replace(found, text=found.text[:MAX_TEXT], detail=_cut(found.detail))
        if window.single < MAX_SINGLE:
            window.single += 1
            self._tell(found)
        else:
            before = window.waits.count if window.waits is not None else 0
            window.waits = replace(found, count=before + found.count)

    def settle(self, now: float, *, at_once: bool = False) -> None:
        """Tell what waits, where its time is over (``at_once``: everywhere). A clock that was set back ends it, too."""
        for series, window in list(self._windows.items()):
            if at_once or not 0 <= now - window.began < WINDOW_SECONDS:
                del self._windows[series]
                if window.waits is not None:
                    self._tell(window.waits)

    def told(self) -> tuple[Happening, ...]:
        """The last ones, in the order in which they were told."""
        return tuple(self._told)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._windows) <= MAX_SERIES + len({series[0] for series in self._windows})
        assert all(window.single <= MAX_SINGLE for window in self._windows.values())
        assert len(self._told) <= min(self.count, MAX_TOLD)

    def _tell(self, found: Happening) -> None:
        self._told.append(found)
        self.count += 1


def new_in(before: ProcessMetrics | None, now: ProcessMetrics) -> tuple[tuple[Happening, ...], int]:
    """What has happened to a process between two reports of it (``before``: None before the first), and how many
    happenings more there were that neither of the two tells."""
    fresh = now.happened - (before.happened if before is not None else 0)
    found = now.happenings[max(0, len(now.happenings) - fresh) :] if fresh > 0 else ()
    return found, max(0, fresh - len(found))


def _cut(detail: str) -> str:
    """JSON that is too long is no JSON when it is cut."""
    return detail if len(detail) <= MAX_DETAIL else ""
