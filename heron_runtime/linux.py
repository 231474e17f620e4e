"""What a process of Heronry asks of the Linux kernel for itself, by ``prctl`` and ``capset``."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 2, 4
_CAPABILITY_VERSION = 0x20080522
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7

# What it takes to run children as another user, and to signal them then. As a set of bits, like the kernel's.
CHANGE_USER = 1 << _CAP_KILL | 1 << _CAP_SETGID | 1 << _CAP_SETUID


def end_with_parent() -> None:
    """Be killed (SIGKILL) when the thread that made us ends. A change of the user undoes it; it is asked for again."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Become the parent of every descendant whose own parent ends, whatever it did to its session and descriptors."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_hidden(hidden: bool = True) -> None:
    """Whether other processes of this user are kept from reading our environment, memory and descriptors, which forked
    children inherit and an exec undoes. Whoever is root with CAP_SYS_PTRACE looks on; core dumps and debuggers of the
    same user go with it."""
    _prctl(_PR_SET_DUMPABLE, 0 if hidden else 1)


def forbid_new_privileges() -> None:
    """Neither we nor any descendant gains rights by executing a program (``sudo``, setuid, capabilities of files)."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def capabilities() -> int:
    """Those that are in effect, as a set of bits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))


def hold_capabilities(held: int, handed_on: int = 0) -> None:
    """Have these and no others, of what this thread has; what it executes has ``handed_on`` of them. (What user 0
    executes has all in any case.) Raises OSError."""
    _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    low, high = held & 0xFFFFFFFF, held >> 32
    data = (ctypes.c_uint32 * 6)(low, low, handed_on & 0xFFFFFFFF, high, high, handed_on >> 32)
    if ctypes.CDLL(None, use_errno=True).capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset was refused")
    for number in range(handed_on.bit_length()):
        if handed_on >> number & 1:
            _prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number)


def change_user(uid: int, gid: int, groups: tuple[int, ...], held: int = 0) -> None:
    """Be this user from now on, without a way back, with ``held`` of the capabilities we have, also in what we execute.

    Raises OSError.
    """
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setresuid(uid, uid, uid)
    hold_capabilities(held, handed_on=held)
    _prctl(_PR_SET_KEEPCAPS, 0)


@contextmanager
def files_as(uid: int, gid: int) -> Iterator[None]:
    """Open files and folders as this user in here, on this thread alone; nobody may signal us for it, as this user.
    Raises OSError where it is refused."""
    kernel = ctypes.CDLL(None)
    before = (
        kernel.setfsuid(-1),
        kernel.setfsgid(-1),
    )  # an impossible number changes nothing and answers the present one
    try:
        kernel.setfsgid(gid)
        kernel.setfsuid(uid)
        if (kernel.setfsuid(-1), kernel.setfsgid(-1)) != (uid, gid):
            raise OSError(errno.EPERM, f"may not open files as user {uid}")
        yield
    finally:
        kernel.setfsuid(before[0])
        kernel.setfsgid(before[1])


def _prctl(option: int, value: int, more: int = 0) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, more, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} was refused")
