"""The saved totals: ``metrics_manager-N.state``, written atomically, read at the next start.

The content is a ``PublishMetrics`` message: exactly what would be told a new topology master. Reading it twice, or
reading an old one, does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from heron_runtime.files import replace_file
from heron_runtime.wire.codec import PUBLISH_METRICS
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import PublishMetrics
from heron_runtime.wire.metrics import ProcessMetrics

MAX_STATE_BYTES = 64 * 1024 * 1024

log = logging.getLogger(__name__)


def load_reports(path: Path) -> Sequence[ProcessMetrics]:
    """What was saved; nothing if there is no file or it is damaged (which is logged)."""
    try:
        if path.stat().st_size > MAX_STATE_BYTES:
            raise MalformedMessage(f"more than {MAX_STATE_BYTES} bytes")
        return PUBLISH_METRICS.decode(path.read_bytes()).processes
    except FileNotFoundError:
        return ()
    except (OSError, MalformedMessage) as error:
        log.warning("%s cannot be read, all-time totals begin anew here: %s", path, error)
        return ()


def save_reports(path: Path, container: int, entries: Sequence[ProcessMetrics]) -> None:
    """Write atomically. Raises OSError; a state beyond 64 MiB is not written (ValueError)."""
    data = PUBLISH_METRICS.encode(PublishMetrics(container, tuple(entries)))
    if len(data) > MAX_STATE_BYTES:
        raise ValueError(f"the totals need {len(data)} bytes, more than {MAX_STATE_BYTES}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
