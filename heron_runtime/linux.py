"""Attributes of this process in the Linux kernel: `prctl` and `capset`."""

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

# Capabilities that are needed to run children as another user and to signal them. A set of bits, as in the kernel.
CHANGE_USER = 1 << _CAP_KILL | 1 << _CAP_SETGID | 1 << _CAP_SETUID


def end_with_parent() -> None:
    """Ask the kernel to send SIGKILL to this process when the thread that created it ends.

    A change of the user resets this, so it has to be called again afterwards.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Become the parent of every descendant whose parent ends, regardless of its session and descriptors."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_hidden(hidden: bool = True) -> None:
    """Hide environment, memory and descriptors from other processes of this user, or show them.

    Forked children inherit this; an exec undoes it. It also disables core dumps and debuggers of the same user. Root
    with CAP_SYS_PTRACE can still read everything.
    """
    _prctl(_PR_SET_DUMPABLE, 0 if hidden else 1)


def forbid_new_privileges() -> None:
    """Prevent this process and its descendants from gaining privileges by executing a program.

    This disables ``sudo``, setuid and the capabilities of files.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def capabilities() -> int:
    """Return the effective capabilities of this process, as a set of bits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))


def hold_capabilities(held: int, handed_on: int = 0) -> None:
    """Restrict the capabilities of this thread. Raises OSError.

    Args:
        held: Capabilities to hold, as a set of bits. The thread must have them.
        handed_on: Those of `held` that executed programs inherit. (Programs that user 0 executes have all anyway.)
    """
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
    """Change the user of this process irrevocably. Raises OSError.

    Args:
        uid: User id.
        gid: Group id.
        groups: Supplementary group ids.
        held: Capabilities that this process keeps and that executed programs inherit, as a set of bits.
    """
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setresuid(uid, uid, uid)
    hold_capabilities(held, handed_on=held)
    _prctl(_PR_SET_KEEPCAPS, 0)


@contextmanager
def files_as(uid: int, gid: int) -> Iterator[None]:
    """Open files and folders as this user within the context, on this thread alone. Raises OSError if refused.

    Unlike a change of the user id, this does not let the user send signals to this process.
    """
    kernel = ctypes.CDLL(None)
    before = (
        kernel.setfsuid(-1),
        kernel.setfsgid(-1),
    )  # an invalid id changes nothing and returns the current one
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
