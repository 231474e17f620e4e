"""Partial writes on a full disk: no partial line remains, and the next line is whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WRITERS = {
    "log": "file = RotatingFile(path, 10**6, 2)\ndef put(data):\n    return file.write(data)",
    "metrics": (
        "def put(data):\n    try:\n        append(path, data, 10**6)\n    except OSError:\n        return False\n"
        "    return True"
    ),
}
# The kernel accepts 100 bytes of a file and no more, like a full disk: a short write, then an error.
PROGRAM = """
import resource, sys
from pathlib import Path
from heron_control.schedulers.log_files import RotatingFile
from metrics_manager.sinks.jsonlines import append
path = Path(sys.argv[1])
{writer}
free, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))
taken = [put(b'{{"n": %d, "text": "%s"}}\\n' % (n, b"x" * 40)) for n in range(4)]
resource.setrlimit(resource.RLIMIT_FSIZE, (free, most))
print(taken, put(b'{{"n": 4}}\\n'))
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_line_is_written_whole_or_not_at_all(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    program = PROGRAM.format(writer=WRITERS[writer])
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[True, False, False, False] True"
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [0, 4]
