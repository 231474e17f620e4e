"""Saved totals in ``metrics_manager-N.state``, written atomically and read at the next start.

The content is a ``PublishMetrics`` message, as a new topology master receives it. Reading it twice, or reading an old
one, is harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from heron_runtime.files import replace_file
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.master import PublishMetrics
from heron_runtime.wire.message_codecs import PUBLISH_METRICS
from heron_runtime.wire.metrics import ProcessMetrics

MAX_STATE_BYTES = 64 * 1024 * 1024

log = logging.getLogger(__name__)


def load_reports(path: Path) -> Sequence[ProcessMetrics]:
    """Return the saved reports; none if the file is missing, or damaged, which is logged."""
    try:
        if path.stat().st_size > MAX_STATE_BYTES:
            raise MalformedMessage(f"more than {MAX_STATE_BYTES} bytes")
        return PUBLISH_METRICS.decode(path.read_bytes()).processes
    except FileNotFoundError:
        return ()
    except (OSError, MalformedMessage) as error:
        log.warning("%s: cannot be read, so all-time totals restart: %s", path, error)
        return ()


def save_reports(path: Path, container: int, entries: Sequence[ProcessMetrics]) -> None:
    """Write the reports atomically.

    Raises:
        OSError: The file cannot be written.
        ValueError: The content exceeds 64 MiB.
    """
    data = PUBLISH_METRICS.encode(PublishMetrics(container, tuple(entries)))
    if len(data) > MAX_STATE_BYTES:
        raise ValueError(f"the totals need {len(data)} bytes, more than {MAX_STATE_BYTES}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
