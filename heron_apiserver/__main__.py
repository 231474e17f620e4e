"""Entry point of ``python -m heron_apiserver``: parse the options and serve until a signal arrives."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heron_apiserver.api_server import UploadLimits
from heron_apiserver.server import LOCAL, ApiServerOptions, serve
from heron_control.packaging.shipping import LIMITS
from heron_control.schedulers.grants import Quota
from heron_control.web.serving import UNREAD_SECONDS, ConnectionLimits, exit_code, port

MiB = 1 << 20


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of connections")
    return int(text)


def _upload_limits(given: argparse.Namespace) -> UploadLimits:
    unpacked = int(given.max_unpacked_mb * MiB)
    return UploadLimits(
        package_bytes=int(given.max_package_mb * MiB),
        unpacked=replace(LIMITS, total_bytes=unpacked, file_bytes=min(unpacked, LIMITS.file_bytes)),
        upload_seconds=given.upload_seconds, idle_seconds=given.idle_seconds,
    )  # fmt: skip


def _quota(given: argparse.Namespace) -> Quota:
    return Quota(
        given.quota_cores,
        None if given.quota_ram_mb is None else int(given.quota_ram_mb * MiB),
        None if given.quota_containers is None else int(given.quota_containers),
        None if given.quota_disk_mb is None else int(given.quota_disk_mb * MiB),
        None if given.quota_checkpoints_mb is None else int(given.quota_checkpoints_mb * MiB),
    )


def parse(arguments: Sequence[str] | None = None) -> ApiServerOptions:
    """Return the options of a command line. Exits with code 2 on a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m heron_apiserver", description="Accept topologies, pack them and drive their scheduler."
    )
    parser.add_argument("--home", type=Path, required=True, help="exclusive folder for tokens, packages and topologies")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, default=9000, help="port, 0 for a free one (default: 9000)")
    parser.add_argument("--public", action="store_true", help="allow a --host that other machines reach (without TLS)")
    parser.add_argument(
        "--scheduler",
        default=LOCAL,
        metavar="NAME",
        help="scheduler of the containers: local, docker, swarm, k8s or a plug-in (default: local)",
    )
    parser.add_argument("--cluster", default="", help="name of the cluster (default: name of the scheduler)")
    parser.add_argument("--state-url", default="", help="URL of the state store (default: files in the home)")
    parser.add_argument("--state-credential", default="", metavar="FILE", help="file with the store's credential")
    parser.add_argument(
        "--packages", default="", metavar="PLACE",
        help="location of packages: a folder, or a URL such as s3://bucket/prefix (default: the home)",
    )  # fmt: skip
    parser.add_argument(
        "--packages-options",
        default="",
        metavar="FILE",
        help="JSON file with credentials and options for the URL of --packages",
    )
    parser.add_argument("--advertise", default="", metavar="HOST", help="host under which trackers reach this process")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="host name that requests may use besides localhost and 127.0.0.1; may be repeated",
    )  # fmt: skip
    parser.add_argument("--max-package-mb", type=_positive, default=512, help="largest package, compressed (MiB)")
    parser.add_argument("--max-unpacked-mb", type=_positive, default=2048, help="largest package, unpacked (MiB)")
    parser.add_argument("--upload-seconds", type=_positive, default=900, help="longest duration of a request body")
    parser.add_argument("--idle-seconds", type=_positive, default=30, help="longest pause within a request body")
    parser.add_argument(
        "--connections-per-address", type=_count, default=ConnectionLimits().per_address, metavar="NUMBER",
        help="connections of one client address at a time, 0: no limit (default: 256)",
    )  # fmt: skip
    parser.add_argument(
        "--unread-seconds", type=_positive, default=UNREAD_SECONDS, help="time for a client to read on (default: 60)"
    )
    parser.add_argument("--quota-cores", type=_positive, help="cores that all topologies together may request")
    parser.add_argument("--quota-ram-mb", type=_positive, help="memory that all topologies together may request (MiB)")
    parser.add_argument(
        "--quota-containers", type=_positive, help="containers of all topologies, including those of topology masters"
    )
    parser.add_argument("--quota-disk-mb", type=_positive, help="size of the volumes of all topologies (MiB)")
    parser.add_argument(
        "--quota-checkpoints-mb", type=_positive, help="size of the named checkpoints of each role (MiB)"
    )
    parser.add_argument(
        "--elect", action="store_true",
        help="run as one of several API servers with the same home and state store: stand by until elected",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="log requests")
    given = parser.parse_args(arguments)
    return ApiServerOptions(
        given.home, given.host, given.port, given.scheduler, given.cluster, given.state_url, given.state_credential,
        given.public, tuple(given.allow_host), given.advertise, _upload_limits(given), _quota(given), given.elect,
        given.packages, given.packages_options, given.verbose,
        ConnectionLimits(given.connections_per_address, given.unread_seconds),
    )  # fmt: skip


def main() -> None:
    """Run the API server and exit with its code."""
    sys.exit(exit_code(lambda: serve(parse()), "heron_apiserver"))


if __name__ == "__main__":
    main()
