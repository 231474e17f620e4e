"""Word count without a framework: source and counter processes, connected by pipes; 1 000 pickled words per message."""

from __future__ import annotations

from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection, wait
from zlib import crc32

from peer_load import PARALLEL, TUPLES, Progress, word_maker

BATCH = 1000


def source(number: int, outs: list[Connection]) -> None:
    """Create words and send them by their hash."""
    make, width = word_maker(number), len(outs)
    waiting: list[list[str]] = [[] for _ in outs]
    for _ in range(TUPLES):
        word = make()
        slot = crc32(word.encode()) % width if width > 1 else 0
        batch = waiting[slot]
        batch.append(word)
        if len(batch) >= BATCH:
            outs[slot].send(batch)
            waiting[slot] = []
    for batch, out in zip(waiting, outs, strict=True):
        out.send(batch)
        out.send(None)


def counter(ins: list[Connection]) -> None:
    """Count words."""
    progress, counts = Progress(), dict[str, int]()
    while ins:
        for ready in wait(ins) if len(ins) > 1 else ins[:]:
            batch = ready.recv()  # type: ignore[union-attr]  # it is one of ours
            if batch is None:
                ins.remove(ready)  # type: ignore[arg-type]  # the same
                continue
            for word in batch:
                counts[word] = counts.get(word, 0) + 1
            progress.add(len(batch))
    progress.finish()


if __name__ == "__main__":
    pipes = [[Pipe(False) for _ in range(PARALLEL)] for _ in range(PARALLEL)]
    workers = [Process(target=source, args=(i, [pipes[i][j][1] for j in range(PARALLEL)])) for i in range(PARALLEL)]
    workers += [Process(target=counter, args=([pipes[i][j][0] for i in range(PARALLEL)],)) for j in range(PARALLEL)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
