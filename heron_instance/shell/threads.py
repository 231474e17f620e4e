"""The threads of this process, as the core asks for them."""

from __future__ import annotations

import threading


class RealThreads:
    """See ``core/own_thread.py``."""

    current = staticmethod(threading.get_ident)
    count = staticmethod(threading.active_count)

    @staticmethod
    def name() -> str:
        """Of the thread that asks."""
        return threading.current_thread().name
