"""``make demo-pipeline``: one program online, in a batch and by micro-batches on Spark over the same novel, and the
merged view of online and batch.

It goes through the front door (``heron submit local``, ``heron submit spark``, ``heron pipeline run``) in a home of its
own that is removed at the end, and exits with 1 if any of the answers differs from a plain count. The jobs share a
Spark that is kept warm meanwhile (``heron spark start``).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from examples.pipeline_words import NEW_YEAR, line, lines, split
from heronry.pipeline import read_view
from heronry.streamlet.results import finished, read

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "examples/pipeline_words.py"
NAME = "words"
TEXT = str(ROOT / "examples" / "data" / "northanger_abbey.txt")
ONLINE_SECONDS = 180
SHOWN = 8


def heron(*arguments: str) -> str:
    """Run one command; its standard output. Raises CalledProcessError."""
    print(f"$ heron {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "heron_cli", *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def online(output: Path) -> Counter[str]:
    """What the topology counted, once it has said that no more will come."""
    heron("submit", "local", PROGRAM, NAME, "--", str(output), TEXT)
    try:
        until = time.monotonic() + ONLINE_SECONDS
        while not finished(output / "online"):
            if time.monotonic() > until:
                raise RuntimeError(f"the topology has not come to its end within {ONLINE_SECONDS} s")
            time.sleep(0.2)
    finally:
        heron("kill", "local", NAME)
    return Counter({record.key: record.value for record in read(output / "online")})


def result(folder: Path) -> Counter[str]:
    """What a job on Spark has written for the program's sink ``output``."""
    parts = [part.read_text() for part in (folder / "output").glob("*.json")]
    records = [json.loads(text) for part in parts for text in part.splitlines()]
    return Counter({record["key"]: record["value"] for record in records})


def batch(output: Path) -> Counter[str]:
    """What one batch counts over the whole of history."""
    place = output / "batch"
    print(heron("submit", "spark", PROGRAM, NAME, "--output-path", str(place), "--", str(output), TEXT), end="")
    return result(place)


def streaming(output: Path) -> Counter[str]:
    """What two runs count: one over the first half of the lines, one that goes on when the other half has come."""
    place, arriving, said = output / "streaming", output / "arriving", range(len(lines()))
    arriving.mkdir()
    for name, numbers in (("first", said[: len(said) // 2]), ("second", said[len(said) // 2 :])):
        (arriving / f"{name}.json").write_text("".join(json.dumps(line(number)) + "\n" for number in numbers))
        told = heron(
            "submit", "spark", PROGRAM, NAME, "--mode", "streaming", "--checkpoint", str(output / "checkpoint"),
            "--input-path", str(arriving), "--input-format", "json", "--output-path", str(place),
            "--", str(output), TEXT,
        )  # fmt: skip
        print(f"{told.rstrip()}: {result(place).total()} words")
    return result(place)


def merged(output: Path, to: dt.datetime) -> Counter[str]:
    """The batch over the archive up to T, and the online buckets behind it."""
    print(heron("pipeline", "run", PROGRAM, NAME, "--to", to.isoformat(), "--", str(output), TEXT), end="")
    view = read_view(NAME)
    buckets = view.buckets()
    owners = Counter(bucket.owner for bucket in buckets)
    print(f"merged view: {owners['batch']} counts of the batch before {to:%H:%M}, {owners['online']} online behind")
    print(f"  {view.promise}")
    if not owners["batch"] or not owners["online"]:
        raise RuntimeError("the view is not merged: one of its layers is empty")
    return Counter(view.totals())


def main() -> int:
    """Three answers and the truth; 1 if they differ."""
    home = Path(tempfile.mkdtemp(prefix="heronry-demo-"))
    os.environ["HERONRY_HOME"] = str(home / "home")
    output = home / "output"
    try:
        truth = Counter(word for number in range(len(lines())) for word in split(line(number)))
        half = dt.datetime.fromtimestamp(NEW_YEAR + len(lines()) // 2, dt.UTC)
        answers = {"online": online(output)}
        heron("spark", "start")
        answers |= {"batch": batch(output), "streaming": streaming(output), "merged": merged(output, half)}
    except (subprocess.CalledProcessError, RuntimeError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        heron("spark", "stop")
        shutil.rmtree(home, ignore_errors=True)
    print(f"\n{len(truth)} words of {Path(TEXT).name}\n{'word':<10}" + "".join(f"{name:>10}" for name in answers))
    for word, _ in truth.most_common(SHOWN):
        print(f"{word:<10}" + "".join(f"{counts[word]:>10}" for counts in answers.values()))
    differing = [name for name, counts in answers.items() if counts != truth]
    for name in differing:
        wrong = [word for word in truth | answers[name] if truth[word] != answers[name][word]]
        print(f"{name} differs from a plain count in {len(wrong)} words, as {wrong[:3]}", file=sys.stderr)
    print("" if differing else "\nonline, batch, streaming and the merged view agree with a plain count")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
