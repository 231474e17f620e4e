"""RTAC without a framework: a source, a counter of the users of each second, a sum; 1 000 events per message."""

from __future__ import annotations

from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection

from peer_load import TUPLES, Progress, event_maker

BATCH = 1000


def source(out: Connection) -> None:
    """Create events."""
    make = event_maker(1)
    for _ in range(TUPLES // BATCH):
        out.send([make() for _ in range(BATCH)])
    out.send(None)


def active(events: Connection, out: Connection) -> None:
    """Count the users of the current second."""
    progress, second, users = Progress(), 0, set[str]()
    while (batch := events.recv()) is not None:
        for user, _, created in batch:
            if int(created) > second:
                out.send((second, len(users)))
                second, users = int(created), set()
            users.add(user)
        progress.add(len(batch))
    out.send(None)
    progress.finish()


def total(counts: Connection) -> None:
    """Sum by second."""
    sums: dict[int, int] = {}
    while (pair := counts.recv()) is not None:
        sums[pair[0]] = sums.get(pair[0], 0) + pair[1]


if __name__ == "__main__":
    events_in, events_out = Pipe(False)
    counts_in, counts_out = Pipe(False)
    workers = [
        Process(target=source, args=(events_out,)),
        Process(target=active, args=(events_in, counts_out)),
        Process(target=total, args=(counts_in,)),
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
