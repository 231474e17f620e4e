"""gRPC service of heron_container: process table, logs, checkpoints and stacks. Authenticated and read-only.

Files are read below one folder, and nowhere else. A path is walked one component at a time with ``openat`` and
O_NOFOLLOW, starting from the open folder. So no symbolic link is ever followed, and nothing can change between a check
and an open. The opened file must be a regular file with a single name, because a hard link could expose a file from
outside. Names are taken literally; ``%2e%2e`` is a file name like any other, and does not exist.

The stacks of a child's threads are written to its log by its ``faulthandler`` on SIGUSR1, and read from there. That
works for a process that hangs, holds the interpreter's lock or is out of memory, because faulthandler runs in the
signal handler itself. A process that does not handle SIGUSR1 is left alone: the signal would end it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from heron_container.shell.children import Child
from heron_control.schedulers.identity import catches
from heron_runtime.checkpoint_files import checkpoint_folder
from heron_runtime.launch import Launch
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import CONTAINER_SERVICE, make_server
from heron_runtime.wire.container import (
    ContainerStatus,
    ContainerStatusRequest,
    FileData,
    FileInfo,
    FileList,
    ListFiles,
    ReadFile,
    Stacks,
    StacksRequest,
)

MAX_READ_BYTES = 1024 * 1024
MAX_ENTRIES = 10_000
MAX_PATH_BYTES = 1024
PATIENCE_SECONDS = 1.5
POLL_SECONDS = 0.02
QUIET_POLLS = 4  # the dump is complete when this many polls have added nothing
MAX_BYTES = 512 * 1024
_BEGIN = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):$")
_FRAME = re.compile(r'^  (File "|<no Python frame>|\.\.\.)')


class InvalidLogPath(ValueError):
    """Raised for a path that cannot lie below the log folder."""


class LogFileNotFound(LookupError):
    """Raised if a log file or folder does not exist, or is a link, a device or a socket."""


def list_files(root: Path, path: str) -> tuple[FileInfo, ...]:
    """Return the regular files and folders of a folder by name, at most MAX_ENTRIES.

    Raises:
        InvalidLogPath: The path leaves the log folder.
        LogFileNotFound: The folder does not exist.
    """
    parts = _parts(path)
    folder = _open(root, parts, os.O_DIRECTORY)
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                info = _info(entry, parts)
                if info is not None:
                    files.append(info)
                if len(files) >= MAX_ENTRIES:
                    break
    except OSError as error:
        raise LogFileNotFound(f"cannot list {path!r}: {error.strerror}") from error
    finally:
        os.close(folder)
    return tuple(sorted(files, key=lambda info: info.path))


def read_file(root: Path, path: str, offset: int, length: int) -> FileData:
    """Return a part of a file, at most MAX_READ_BYTES. A negative offset counts from the end.

    Raises:
        InvalidLogPath: The path leaves the log folder.
        LogFileNotFound: The file does not exist.
    """
    parts = _parts(path)
    if not parts:
        raise InvalidLogPath("a file name is missing")
    if length < 0:
        raise InvalidLogPath(f"length {length} is negative")
    descriptor = _open(root, parts, os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not _served(status) or stat.S_ISDIR(status.st_mode):
            raise LogFileNotFound(f"{path!r} is not a log file")
        size = status.st_size
        begin = max(0, size + offset) if offset < 0 else min(offset, size)
        return FileData(begin, os.pread(descriptor, min(length, MAX_READ_BYTES), begin), size)
    except OSError as error:
        raise LogFileNotFound(f"cannot read {path!r}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _parts(path: str) -> list[str]:
    if "\0" in path or path.startswith("/") or len(path.encode(errors="surrogatepass")) > MAX_PATH_BYTES:
        raise InvalidLogPath("a path below the log folder is relative, short and without NUL")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidLogPath("'..' leaves the log folder")
    return parts


def _open(root: Path, parts: list[str], last_flags: int) -> int:
    """Open a file without following links. The caller closes the descriptor."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        current = os.open(root, flags | os.O_DIRECTORY)
    except OSError as error:
        raise LogFileNotFound(f"cannot open the log folder: {error.strerror}") from error
    for number, part in enumerate(parts):
        wanted = last_flags if number == len(parts) - 1 else os.O_DIRECTORY
        try:
            below = os.open(part, flags | os.O_NOFOLLOW | wanted, dir_fd=current)
        except (OSError, ValueError) as error:
            raise LogFileNotFound(f"no log file {'/'.join(parts)!r}") from error
        finally:
            os.close(current)
        current = below
    return current


def _served(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)


def _info(entry: os.DirEntry[str], parts: list[str]) -> FileInfo | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # it was rotated away at this moment
    if not _served(status):
        return None
    name = "/".join([*parts, entry.name])
    try:
        name.encode()
    except UnicodeEncodeError:
        return None  # not one of our names, and a message cannot carry it
    folder = stat.S_ISDIR(status.st_mode)
    return FileInfo(name, 0 if folder else status.st_size, status.st_mtime, folder)


class StacksUnavailable(Exception):
    """Raised if a process does not show its stacks."""


async def dump_stacks(child: Child, log_file: Path) -> str:
    """Return the stacks of all threads of a child.

    Raises:
        StacksUnavailable: The process does not show them.
    """
    if not await asyncio.to_thread(catches, child.pid, signal.SIGUSR1):
        raise StacksUnavailable("the process does not handle SIGUSR1: it is starting or has ended")
    begin = await asyncio.to_thread(_size, log_file)
    child.send_signal(signal.SIGUSR1)
    text, quiet = "", 0
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while quiet < QUIET_POLLS or not text:
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(POLL_SECONDS)
        now = extract_stacks(await asyncio.to_thread(_added, log_file, begin))
        quiet = quiet + 1 if now == text else 0
        text = now
    if not text:
        raise StacksUnavailable(f"the process wrote no stacks within {PATIENCE_SECONDS:g} s; it may be stopped")
    return text


def extract_stacks(text: str) -> str:
    """Return the stacks within a piece of log, without what the process wrote meanwhile."""
    stacks: list[str] = []
    inside = False
    for line in text.splitlines():
        if _BEGIN.match(line):
            inside = True
            stacks += ["", line] if stacks else [line]
        elif inside and _FRAME.match(line):
            stacks.append(line)
        else:
            inside = False
    return "\n".join(stacks)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _added(file: Path, begin: int) -> str:
    """Return what was appended to the file; all of it if the file was rotated."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(begin if size >= begin else 0)
            return opened.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


async def serve(
    launch: Launch, status: Callable[[], ContainerStatus], child: Callable[[str], Child | None] = lambda _: None
) -> tuple[grpc.aio.Server, int]:
    """Start the server on a free port of ``launch.bind_host`` and return it with its port.

    Args:
        launch: Launch of the topology.
        status: Returns the current status.
        child: Finds a living child by its name.

    Raises:
        OSError: No port is available.
        RuntimeError: The server cannot listen.
    """
    dumping = asyncio.Semaphore(1)  # simultaneous dumps could not be told apart in one log

    async def answer_status(_: ContainerStatusRequest, __: grpc.aio.ServicerContext) -> ContainerStatus:
        return status()

    async def answer_list(request: ListFiles, context: grpc.aio.ServicerContext) -> FileList:
        files = await _confined(context, list_files, launch.log_dir, request.path)
        return FileList(files)

    async def answer_read(request: ReadFile, context: grpc.aio.ServicerContext) -> FileData:
        part: FileData = await _confined(
            context, read_file, launch.log_dir, request.path, request.offset, request.length
        )
        return part

    checkpoints = checkpoint_folder(None, launch.home).folder

    async def answer_checkpoint_list(request: ListFiles, context: grpc.aio.ServicerContext) -> FileList:
        files = await _confined(context, list_files, checkpoints, request.path)
        return FileList(files)

    async def answer_checkpoint_read(request: ReadFile, context: grpc.aio.ServicerContext) -> FileData:
        part: FileData = await _confined(context, read_file, checkpoints, request.path, request.offset, request.length)
        return part

    async def answer_stacks(request: StacksRequest, context: grpc.aio.ServicerContext) -> Stacks:
        process = child(request.process)
        if process is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"container has no running process {request.process!r}")
        assert process is not None
        try:
            async with dumping:
                text = await dump_stacks(process, launch.log_dir / f"{request.process}.log")
        except StacksUnavailable as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return Stacks(request.process, process.pid, text)

    handler = CONTAINER_SERVICE.handler(
        Status=answer_status,
        ListFiles=answer_list,
        ReadFile=answer_read,
        Stacks=answer_stacks,
        ListCheckpointFiles=answer_checkpoint_list,
        ReadCheckpointFile=answer_checkpoint_read,
    )
    server, port = make_server(identity_of(launch), f"{launch.bind_host}:0", [handler])
    await server.start()
    return server, port


async def _confined(context: grpc.aio.ServicerContext, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return await asyncio.to_thread(function, *arguments)
    except InvalidLogPath as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except LogFileNotFound as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
