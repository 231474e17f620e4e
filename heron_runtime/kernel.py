"""What a process of Heronry asks of the Linux kernel for itself, by ``prctl``."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def end_with_parent() -> None:
    """Be killed (SIGKILL) when the thread that made us ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, whatever it did to its session and descriptors."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide(hidden: bool = True) -> None:
    """Whether other processes of this user are kept from reading our environment, memory and descriptors, which forked
    children inherit and an exec undoes. Whoever is root with CAP_SYS_PTRACE looks on; core dumps and debuggers of the
    same user go with it."""
    _prctl(_PR_SET_DUMPABLE, 0 if hidden else 1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} was refused")
