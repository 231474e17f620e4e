"""Generate the protobuf code: ``python protos/generate.py FOLDER``; ``make protos`` names the folder of the product.

``protoc`` derives Python packages from paths, and the paths of ``.proto`` files are part of their descriptors. The
files are therefore compiled under their own paths, and the names of the generated modules are replaced afterwards.
"""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "heron_runtime.wire.generated"


def generate(folder: Path) -> None:
    """Write the modules of all ``.proto`` files to ``folder``.

    Raises:
        SystemExit: The compiler rejects a file; it has printed why.
    """
    with tempfile.TemporaryDirectory() as compiled:
        sources = sorted(str(path) for path in (ROOT / "protos").glob("*.proto"))
        arguments = ["protoc", f"-I{ROOT}", f"--python_out={compiled}", f"--pyi_out={compiled}", *sources]
        if protoc.main(arguments) != 0:
            raise SystemExit(1)
        for file in sorted(Path(compiled, "protos").iterdir()):
            text = file.read_text().replace("from protos import", f"from {PACKAGE} import")
            text = text.replace("'protos.heronry_", f"'{PACKAGE}.heronry_")
            (folder / file.name).write_text(text)


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
