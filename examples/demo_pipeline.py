"""``make demo-pipeline``: one program online, as a Spark batch, by micro-batches, and as a merged view.

Runs ``heron submit local``, ``heron submit spark`` and ``heron pipeline run`` over one novel, in a home folder of its
own that is removed at the end. Exits with 1 if a result differs from a plain count. The jobs share a warm Spark
(``heron spark start``).
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
    """Run one command and return its standard output. Raises CalledProcessError."""
    print(f"$ heron {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "heron_cli", *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def online(output: Path) -> Counter[str]:
    """Run the topology to its end and return its counts."""
    heron("submit", "local", PROGRAM, NAME, "--", str(output), TEXT)
    try:
        until = time.monotonic() + ONLINE_SECONDS
        while not finished(output / "online"):
            if time.monotonic() > until:
                raise RuntimeError(f"the topology did not finish within {ONLINE_SECONDS} s")
            time.sleep(0.2)
    finally:
        heron("kill", "local", NAME)
    return Counter({record.key: record.value for record in read(output / "online")})


def result(folder: Path) -> Counter[str]:
    """Return the counts that a Spark job wrote for the sink ``output``."""
    parts = [part.read_text() for part in (folder / "output").glob("*.json")]
    records = [json.loads(text) for part in parts for text in part.splitlines()]
    return Counter({record["key"]: record["value"] for record in records})


def batch(output: Path) -> Counter[str]:
    """Return the counts of one batch over all lines."""
    place = output / "batch"
    print(heron("submit", "spark", PROGRAM, NAME, "--output-path", str(place), "--", str(output), TEXT), end="")
    return result(place)


def streaming(output: Path) -> Counter[str]:
    """Return the counts of two runs: one over the first half of the lines, one that continues with the other half."""
    place, arriving, all_lines = output / "streaming", output / "arriving", range(len(lines()))
    arriving.mkdir()
    for name, numbers in (("first", all_lines[: len(all_lines) // 2]), ("second", all_lines[len(all_lines) // 2 :])):
        (arriving / f"{name}.json").write_text("".join(json.dumps(line(number)) + "\n" for number in numbers))
        printed = heron(
            "submit", "spark", PROGRAM, NAME, "--mode", "streaming", "--checkpoint", str(output / "checkpoint"),
            "--input-path", str(arriving), "--input-format", "json", "--output-path", str(place),
            "--", str(output), TEXT,
        )  # fmt: skip
        print(f"{printed.rstrip()}: {result(place).total()} words")
    return result(place)


def merged(output: Path, to: dt.datetime) -> Counter[str]:
    """Run the batch over the archive up to T and return the counts of the merged view."""
    print(heron("pipeline", "run", PROGRAM, NAME, "--to", to.isoformat(), "--", str(output), TEXT), end="")
    view = read_view(NAME)
    buckets = view.buckets()
    owners = Counter(bucket.owner for bucket in buckets)
    print(f"merged view: {owners['batch']} counts of the batch before {to:%H:%M}, {owners['online']} online after it")
    print(f"  {view.promise}")
    if not owners["batch"] or not owners["online"]:
        raise RuntimeError("the view is not merged: one of its layers is empty")
    return Counter(view.totals())


def main() -> int:
    """Compare the results with a plain count and return the exit code."""
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
