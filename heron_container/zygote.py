"""Zygote: a process that imports the modules its children need, opens nothing, and forks them.

A container has two. One forks instances; it does not import gRPC, which instances do not use. The other forks the
services of the container: topology masters, stream manager, metrics manager. A forked process shares the zygote's
memory and starts in milliseconds. Forking is sound only while the zygote has a single thread and holds nothing that
must not be shared. So it imports, freezes the garbage collector, and then only serves its socket: no logging, no
server, no channel, no event loop, no user code.

``heron_container`` forks both zygotes during its start, while it is single-threaded itself
(``heron_container.startup``). A zygote that dies is replaced by ``python -m heron_container.zygote``. No other process
of Heronry forks without exec.

Protocol (JSON on a SOCK_SEQPACKET socket pair, one message each):

* to the zygote: ``{"fork": {slot, kind, container, component, task, title, environment}}`` with two descriptors, log
  pipe and lifeline
* from the zygote: ``{"ready": true}`` once; ``{"forked": slot, "pid": pid}`` with the child's pidfd; ``{"failed":
  slot, "error": text}``; ``{"exited": slot, "pid": pid, "status": wait status}``

End of file means that heron_container has ended: the zygote ends all its children and exits. If the zygote dies, its
children end in two ways. Each holds a lifeline whose write end only heron_container has, and the kernel kills them when
the zygote ends (PR_SET_PDEATHSIG), so that even a stopped or hung process leaves no orphan. heron_container closes the
lifelines when the zygote dies, and restarts zygote and children.

If user code runs as a user of its own (``heron_runtime.code_user``), an instance becomes that user before anything
else. The zygote of instances keeps the capabilities to change the user and to signal its children; the zygote of
services has none.

Processes that user code started and an instance left running become children of the zygote (``heron_runtime.orphans``).
It ends them before it reports the end of the instance.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from heron_runtime.code_user import CodeUser, code_user
from heron_runtime.linux import (
    CHANGE_USER,
    become_subreaper,
    capabilities,
    change_user,
    end_with_parent,
    hold_capabilities,
    set_hidden,
)
from heron_runtime.orphans import end_all_orphans, end_orphans

if TYPE_CHECKING:
    from heron_runtime.launch import Launch

INSTANCE = "heron_instance"
INSTANCE_MAIN = "heron_instance.shell.main"
IMPORTED_FOR_INSTANCES = (
    "asyncio", "uvloop", "google.protobuf.message", "google.protobuf.descriptor_pb2", "numpy",
    "numpy.random", "msgspec", "mmh3", "psutil", "setproctitle", "heron_runtime.process", "heron_runtime.net.link",
    "heron_runtime.wire.message_codecs", "heron_runtime.wire.data_codec", "heron_runtime.wire.sketch_codec",
    "heron_runtime.telemetry.recorder",
    "heronry.api.assemble", "heronry.api.builder",
    "heronry.api.context", "heronry.api.grouping", "heronry.api.metrics", "heronry.api.spec", "heronry.api.topology",
    INSTANCE_MAIN,
)  # fmt: skip
MAX_MESSAGE_BYTES = 128 * 1024
LIFELINE = 3  # its descriptor in a child
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Request to fork one process, with the two descriptors that it gets."""

    slot: int
    kind: str
    container: int
    component: str
    task: int
    title: str
    environment: dict[str, str]
    log: int
    lifeline: int


def modules_to_preload(kinds: Iterable[str], launch: Launch) -> list[str]:
    """Return the modules that processes of these kinds share.

    Plugged-in modules are not among them: each process imports them itself.
    """
    from heron_runtime.extensions import METRICS_SINKS, STATE_STORES
    from heron_runtime.model.settings import Keys, setting

    if INSTANCE in kinds:
        return list(IMPORTED_FOR_INSTANCES)
    named = [STATE_STORES.built_in.get(launch.store_url.partition(":")[0])]
    named += [METRICS_SINKS.built_in.get(name) for name in setting(launch.settings, Keys.HERON_METRICS_SINKS)]
    named.append("heron_runtime.wire.sketch_codec")
    return [f"{kind}.__main__" for kind in kinds] + [name.partition(":")[0] for name in named if name]


def zygote_name(kinds: Iterable[str]) -> str:
    """Return the name of the zygote that forks these kinds of processes."""
    return "zygote" if INSTANCE in kinds else "services"


def process_arguments(launch_file: str, container: int, slot: int) -> list[str]:
    """Return the command-line arguments that every process of a container gets."""
    return ["--launch", launch_file, "--container", str(container), "--slot", str(slot)]


def preload(names: Iterable[str]) -> None:
    """Import all modules that the children share.

    Raises:
        ImportError: A module is missing.
        RuntimeError: An import has started a thread.
    """
    # Set before numpy is imported: its thread pool would be a second thread.
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    for name in names:
        importlib.import_module(name)
    from heron_runtime.wire.message_codecs import prepare_all

    prepare_all()
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        raise RuntimeError(f"cannot fork: an import has started {len(threads) - 1} threads")
    # Not preceded by a collection: children would fill the holes it leaves, each with pages of its own.
    gc.freeze()


class Zygote:
    """Server of the socket that forks processes and reports the ends of its children."""

    def __init__(self, connection: socket.socket, code_user: CodeUser | None) -> None:
        become_subreaper()
        self._connection = connection
        self._code_user = code_user
        self._slots: dict[int, int] = {}  # pid to slot
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up descriptor reports it

    def serve(self) -> ForkRequest | None:
        """Serve requests until heron_container has ended.

        Returns:
            None in the zygote; in a forked child, the request that created it.
        """
        self._send({"ready": True})
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake_read:
                    self._reap()
                    continue
                data, descriptors, _, _ = socket.recv_fds(self._connection, MAX_MESSAGE_BYTES, 4)
                if not data:
                    end_all_orphans((), END_SECONDS)  # every child is an orphan now
                    return None
                request = ForkRequest(**json.loads(data)["fork"], log=descriptors[0], lifeline=descriptors[1])
                if self._fork(request):
                    self._connection.detach()  # already closed; its number may soon be reused
                    return request

    def _fork(self, request: ForkRequest) -> bool:
        """Fork one process; return True in the child."""
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"failed": request.slot, "error": f"cannot fork: {error.strerror}"})
            self._close(request)
            return False
        if pid == 0:
            _become_child(request, zygote, self._code_user)
            return True
        self._slots[pid] = request.slot
        pidfd = os.pidfd_open(pid)  # before it can be reaped, so it is certainly this child's
        self._send({"forked": request.slot, "pid": pid}, pidfd)
        os.close(pidfd)
        self._close(request)
        return False

    def _reap(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass
        ended = []
        try:
            while (waited := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                ended.append(waited)
        except ChildProcessError:
            pass  # that was the last child
        end_orphans(self._slots)  # their ends wake this loop again, until none is left
        for pid, status in ended:
            if pid in self._slots:
                self._send({"exited": self._slots.pop(pid), "pid": pid, "status": status})

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        try:
            socket.send_fds(self._connection, [json.dumps(message).encode()], list(descriptors))
        except (BrokenPipeError, ConnectionError):
            os._exit(0)  # heron_container has ended

    @staticmethod
    def _close(request: ForkRequest) -> None:
        os.close(request.log)
        os.close(request.lifeline)


def _become_child(request: ForkRequest, zygote: int, user: CodeUser | None) -> None:
    """Drop everything the child inherited from the zygote. Runs first in the child."""
    if user is not None:
        change_user(user.uid, user.gid, user.groups)
    end_with_parent()  # after the change of the user, which resets it
    if os.getppid() != zygote:
        os._exit(120)  # the zygote died before the call above
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(request.log, 1)
    os.dup2(request.log, 2)
    os.dup2(request.lifeline, LIFELINE, inheritable=False)
    os.closerange(LIFELINE + 1, os.sysconf("SC_OPEN_MAX"))
    _reseed()
    os.environ.update(request.environment)
    sys.argv[1:] = []  # user code must not see the zygote's arguments
    from setproctitle import setproctitle

    setproctitle(request.title)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # TextIOWrapper at this point
    gc.enable()


def _reseed() -> None:
    """Seed the random number generators, so that no two processes draw the same numbers."""
    import random

    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))


def run_zygote(
    connection: socket.socket,
    launch: Launch,
    launch_file: str,
    container: int,
    kinds: Sequence[str],
    user: CodeUser | None,
) -> NoReturn:
    """Preload and serve until the end; in a forked child, run the requested process as ``user``."""
    if os.geteuid() != 0 and capabilities():
        hold_capabilities(CHANGE_USER if user is not None else 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # heron_container handles ctrl-c in a terminal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the zygote ends at end of file, after its children
    gc.disable()
    preload(modules_to_preload(kinds, launch))
    from setproctitle import setproctitle

    setproctitle(f"heron:{launch.topology}:{zygote_name(kinds)}-{container}")
    request = Zygote(connection, user).serve()
    if request is None:
        sys.exit(0)
    if request.kind == INSTANCE:
        main = importlib.import_module(INSTANCE_MAIN).run_instance
        sys.exit(main(launch, container, request.component, request.task, request.slot, LIFELINE))
    # The same entry point as of an executed process.
    sys.argv = [request.kind, *process_arguments(launch_file, container, request.slot)]
    sys.argv += ["--lifeline", str(LIFELINE)]
    sys.exit(importlib.import_module(f"{request.kind}.__main__").main())


def main() -> None:
    """Run ``python -m heron_container.zygote --launch FILE --container N --socket FD KIND…``."""
    parser = argparse.ArgumentParser(prog="python -m heron_container.zygote")
    parser.add_argument("--launch", required=True)
    parser.add_argument("--container", type=int, required=True)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("kinds", nargs="+", help="packages whose processes it forks")
    options = parser.parse_args()
    from heron_runtime.launch import Launch

    set_hidden()
    os.set_inheritable(options.socket, False)
    connection = socket.socket(fileno=options.socket)
    launch = Launch.load(options.launch)
    user = code_user(launch.settings) if INSTANCE in options.kinds else None
    run_zygote(connection, launch, options.launch, options.container, options.kinds, user)


if __name__ == "__main__":
    main()
