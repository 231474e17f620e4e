"""Reference pages generated from the code while the site is built, so that they cannot be stale.

MkDocs loads this module as a hook. ``python docs/generate.py FOLDER`` writes the pages for reading without a site.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, cast

import typer.main

from heron_apiserver.api_server import ApiServer
from heron_apiserver.application import make_app as make_apiserver
from heron_apiserver.server import ApiServerOptions, cluster_config, prepare_home, store_and_scheduler
from heron_apiserver.tokens import TokenBook
from heron_cli.application import make_app as make_command
from heron_runtime import failures
from heron_runtime.model.metrics import SECTIONS, MetricDefinition, MetricKey
from heron_runtime.model.settings import ALL_SETTINGS, Setting
from heron_tracker.application import make_app as make_tracker
from heron_tracker.tracker import Tracker

_METRIC_KEYS = {
    MetricKey.NONE: "",
    MetricKey.STREAM: "/STREAM",
    MetricKey.SOURCE: "/COMPONENT/STREAM",
    MetricKey.INSTANCE: "/INSTANCE",
    MetricKey.OTHER: "/…",
}
_SCALES = {1e-3: "ms", 1e-6: "µs", 1e-9: "ns"}

_METRICS = """# Metrics

Every metric of Heronry, grouped by the process that counts it.

**Where to see them.** `heron metrics`, the tracker, the web page and the JSON lines use the Heron names
with the key after a slash, as in `__execute-count/split/default`. Prometheus uses its own names. Each
sample has the labels `topology`, `component`, `instance`, `container` and `stream` (the key).
A metric that a topology registers keeps its name, and is called `heron_user_NAME` in Prometheus.

**Kinds.** A counter is a total since the topology began, over all restarts of a process. A gauge has a
last, least, greatest and mean value for an interval. A latency is a distribution: its percentiles are
percentiles of all tuples, not means of means.

**Retention.** The topology master keeps points of 5 seconds for 10 minutes and points of a minute for
3 hours. [History](../how-to/history.md) explains how to keep them for longer.

**Interval.** Processes report every `heron.metrics.interval.secs` (5 s). A counter can be that old.
"""

_CONFIGURATION = """# Configuration

Every configuration key. Keys that begin with `topology.` belong to the author of a topology: set them in
the `config` of the topology. Where the table says *component*, a component's own `config` may set them.
Keys that begin with `heron.` belong to the operator: set them with `--config-property KEY=VALUE`.
Names that begin with `user.` are free for your own keys.

`heronry.Config` accepts the `topology.*` keys as arguments, with underscores for dots:
`Config(topology_stmgrs=2)`. Editors complete these names, and type checkers check their values.
"""

_ENVIRONMENT = """## Environment variables

| Variable | Read by | Meaning |
|---|---|---|
| `HERONRY_HOME` | `heron`, servers | Home folder of all files. Default: `~/.local/share/heronry` |
| `XDG_RUNTIME_DIR` | `heron` | Folder of the Unix sockets of running topologies. Default: `/tmp/heronry-UID` |
| `PIP_INDEX_URL` | `heron submit` | Package index for the `requirements.txt` of a topology |
| `DOCKER_HOST`, `KUBECONFIG` | API server, `heron doctor` | The Docker engine or Kubernetes cluster |
| `JAVA_HOME`, `SPARK_HOME` | `heron submit spark` | Java, and a Spark other than that of PySpark |
| `HERONRY_TRACKER_PORT`, `HERONRY_API_PORT` | Compose | [Ports](ports.md) |
| `HERONRY_BIND` | Compose | Address on which the ports are published. Default: 127.0.0.1 |
| `HERONRY_QUOTA_…`, `HERONRY_EXTRAS` | Compose | [Limits and images](../how-to/cluster.md) of the cluster |
| `HERONRY_SWARM_…` | API server | Settings of [Swarm](../how-to/deploy/swarm.md) |
| `HERONRY_K8S_…` | API server | Settings of [Kubernetes](../how-to/deploy/kubernetes.md) |

To give a variable to your own code, set `topology.environment` in the `config` of the topology.

## Configuration files

`config.yaml` in `HERONRY_HOME` has settings by cluster. `heron config CLUSTER set KEY VALUE` writes them, and
`heron config CLUSTER explain` prints each key with its value and where it comes from.
The `config` of the topology overrides the file, and `--config-property KEY=VALUE` overrides both.
"""

_EXIT_CODES = """# Exit codes

The `heron` command ends with 0 when it has done what was asked. Every error prints its cause to stderr,
and a remedy where one is known. `--verbose` adds the Python traceback. The HTTP status is what the API
server and the tracker answer for the same kind of error.

| Exit code | HTTP status | Kind | Meaning |
|---|---|---|---|
"""

_MORE_EXIT_CODES = """
The API server also answers 401 (token missing or wrong), 408 (the request came too slowly), 413 (too
large), 429 (too many wrong tokens) and 507 (no space). `heron` ends with 5 after 401, with 7 after 413,
with 6 after 408 and 429, and with 1 after 507.

## Servers

| Exit code | Server | Meaning |
|---|---|---|
| 0 | API server, tracker | SIGTERM or Ctrl-C |
| 6 | API server with `--elect` | It can no longer lead. Start it again |
| other | API server, tracker | It did not start; the codes are those of `heron` |

## Containers and their processes

`heron status` shows these codes as the last error of a process.

| Exit code | Meaning |
|---|---|
| 1 | An exception; the log has the traceback |
| 65 | The container cannot start, for example since its package is refused |
| 120 | The parent process is gone |
| 121 | Another process has replaced this one |
| 122 | The task starts again with new settings, after `heron update` |
| 137 | SIGKILL: `docker kill`, or the memory limit (OOM). The error names the limit if it was the cause |
| 128 + N | Signal N |
"""

# Base classes and classes that users meet without importing them from ``heronry``.
_MORE_API = (
    "heronry.api.component.KeyedMapping",
    "heronry.api.spec.ComponentDeclaration",
    "heronry.api.grouping.CustomGrouping",
    "heronry.api.metrics.CountMetric",
    "heronry.api.metrics.MultiCountMetric",
    "heronry.api.metrics.GaugeMetric",
    "heronry.api.metrics.MeanMetric",
    "heronry.api.metrics.LatencyMetric",
    "heronry.api.serializer.Serializer",
)

# Attributes and optional methods of component classes: class, name, meaning.
_MEMBERS = (
    (
        "Component",
        "outputs",
        "Names of the fields of the default stream, and `Stream` objects for more streams.",
    ),
    ("Component", "config", "Configuration of the component: its own `user.` keys and the keys marked *component*."),
    ("Component", "keyed", "Values by key (bolts with fields grouping) or positions by split (spouts with `splits`)."),
    ("Component", "state", "Mapping of this task. Saved in checkpoints with `EFFECTIVELY_ONCE`, as `keyed` is."),
    ("Bolt", "auto_ack", "Ack a tuple when `process` returns. True in `BasicBolt` and `BatchBolt`."),
    ("Bolt", "auto_anchor", "Anchor emits to the current tuple. True in `BasicBolt`."),
    ("Bolt", "exception_policy", "`fail` or `restart`, unless `topology.on.exception` is set. `restart` in `Bolt`."),
    ("Bolt", "output_effect", "Effect outside of the topology: `idempotent` or `at_least_once` (`EFFECTIVELY_ONCE`)."),
    ("Bolt", "dead_letters", "Stream that receives records on which `process` raises (`EFFECTIVELY_ONCE`)."),
    ("Spout", "emit_time_ms(values)", "Time of the data in ms since 1970, for `topology.spout.drop.older.ms`."),
    ("Component", "merge_state(states)", "Take over `self.state` of tasks that `heron update` removed."),
    ("Component", "union_state(states)", "Receive `self.state` of all tasks of the component after a restore."),
)
_DUCK_TYPED = ("emit_time_ms", "merge_state", "union_state")  # no base class defines them

_EXIT_MEANINGS = {
    "Failure": "The command failed.",
    "UsageError": "The command line or the request is invalid.",
    "NotFound": "The named object does not exist.",
    "ExistsAlready": "The name is in use.",
    "NotAllowed": "The operating system or the cluster forbids the operation.",
    "Unavailable": "A service does not answer, or does not answer in time.",
    "InvalidTopology": "The topology, its code or its package cannot run.",
    "Interrupted": "Ctrl-C. The message says what was done before.",
}

_ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that are pages of the site as well.
_ROOT_PAGES = {
    "reference/changelog.md": "CHANGELOG.md",
    "development/contributing.md": "CONTRIBUTING.md",
    "development/security-policy.md": "SECURITY.md",
}
# Weights of generated pages in the search, so that guides come before lists of signatures. Default: 1.
_SEARCH_WEIGHTS = {
    "reference/api.md": 0.4,
    "reference/api-streamlet.md": 0.4,
    "reference/rest-apiserver.md": 0.4,
    "reference/rest-tracker.md": 0.4,
    "reference/changelog.md": 0.1,
    "development/security-policy.md": 0.4,
}


def pages() -> dict[str, str]:
    """Return the text of each generated page by its path below ``docs/``."""
    return {
        "reference/api.md": api_page("Topology API", "heronry", _MORE_API),
        "reference/api-streamlet.md": api_page("Streamlet API", "heronry.streamlet"),
        "reference/api-testing.md": api_page("Testing API", "heronry.testing"),
        "reference/cli.md": cli_page(),
        "reference/configuration.md": configuration_page(),
        "reference/exit-codes.md": exit_codes_page(),
        "reference/metrics.md": metrics_page(),
        "reference/rest-apiserver.md": rest_page("REST API of the API server", apiserver_schema()),
        "reference/rest-tracker.md": rest_page("REST API of the tracker", make_tracker(Tracker({})).openapi()),
        **{path: root_page(name) for path, name in _ROOT_PAGES.items()},
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site (a hook of MkDocs)."""
    File = importlib.import_module("mkdocs.structure.files").File  # only there while the site is built
    for path, text in pages().items():
        weight = f"---\nsearch:\n  boost: {_SEARCH_WEIGHTS.get(path, 1)}\n---\n\n"
        files.append(File.generated(config, path, content=weight + text))
    return files


def root_page(name: str) -> str:
    """Return a file of the repository as a page of a subfolder of the site; links lead to pages."""
    pages_by_name = {file: path for path, file in _ROOT_PAGES.items()}

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        if target.startswith("docs/"):
            return f"[{text}](../{target.removeprefix('docs/')})"
        return f"[{text}](../{pages_by_name[target]})" if target in pages_by_name else text

    return re.sub(r"\[([^]]+)\]\(([\w./-]+\.md)\)", link, (_ROOT / name).read_text())


def api_page(title: str, module: str, more: Iterable[str] = ()) -> str:
    """Return the page about every public name of a module; mkdocstrings fills it from the docstrings."""
    names = importlib.import_module(module)
    homes = [getattr(getattr(names, name), "__module__", module) + "." + name for name in names.__all__]
    parts = [f"# {title}\n\nImport these names from `{module}`.\n", *(f"::: {home}\n" for home in homes)]
    if more:
        parts[1:1] = [members_section(), "::: heronry.api.component.Component\n"]
        parts += ["Classes that components receive or that are imported from their own module:\n"]
        parts += [f"::: {home}\n" for home in more]
    return "\n".join(parts)


def members_section() -> str:
    """Return the table of attributes and optional methods of component classes."""
    classes = importlib.import_module("heronry.api.component")
    for kind, name, _ in _MEMBERS:
        if name.partition("(")[0] not in _DUCK_TYPED and not hasattr(getattr(classes, kind), name):
            raise LookupError(f"{kind} has no attribute {name!r}: correct _MEMBERS")
    rows = [f"| `{kind}` | `{name}` | {meaning} |" for kind, name, meaning in _MEMBERS]
    head = "## Attributes and optional methods of components\n\nA component class may set or define these names.\n"
    return "\n".join([head, "| Class | Name | Meaning |", "|---|---|---|", *rows, ""])


def cli_page() -> str:
    """Return the page about every command and its options."""
    parts = ["# Command line\n\nEvery command of `heron`. `heron COMMAND --help` prints the same text.\n"]
    parts += [_command_section(path, command) for path, command in commands()]
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, with its full name."""
    yield from _leaves("heron", typer.main.get_command(make_command()))


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, child in command.commands.items():
        yield from _leaves(f"{path} {name}", child)


def _command_section(path: str, command: Any) -> str:
    arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([path, "[OPTIONS]", *arguments])
    lines = [f"## {path}", "", _prose(command.help or ""), "", "```text", usage, "```"]
    rows = [_parameter_row(p) for p in command.params if not getattr(p, "hidden", False)]
    if rows:
        lines += ["", "| Parameter | Default | Meaning |", "|---|---|---|", *rows]
    return "\n".join([*lines, ""])


def _parameter_row(parameter: Any) -> str:
    names = _option(parameter) if parameter.param_type_name == "option" else _argument(parameter)
    default = parameter.opts[0] if parameter.default is True else parameter.default
    shown = "" if default in (None, (), [], False, "") or callable(default) else f"`{_plain(default)}`"
    return f"| `{names}` | {shown} | {_cell(getattr(parameter, 'help', None) or '')} |"


def _option(parameter: Any) -> str:
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    value = _value_form(parameter)
    return f"{names} {value}" if value else names


def _argument(parameter: Any) -> str:
    form = _value_form(parameter) or parameter.name.upper()
    return form if parameter.required or form.startswith("[") else f"[{form}]"


def _value_form(parameter: Any) -> str:
    """Return the form of a value as the help shows it: its placeholder, its choices or its type."""
    annotation = parameter.type_descriptor.annotation
    if parameter.metavar or annotation is bool:
        return parameter.metavar or ""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(choice.value) for choice in annotation)
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(annotation, "TEXT")


def _plain(value: Any) -> str:
    return str(getattr(value, "value", value))


def configuration_page() -> str:
    """Return the page about every configuration key."""
    parts = [_CONFIGURATION]
    for family, title in (("topology.", "Topology keys"), ("heron.", "Operator keys")):
        rows = [_setting_row(row) for name, row in ALL_SETTINGS.items() if name.startswith(family)]
        parts.append("\n".join([f"## {title}\n", "| Key | Type | Default | Meaning |", "|---|---|---|---|", *rows]))
    return "\n".join(part + "\n" for part in [*parts, _ENVIRONMENT])


def _setting_row(row: Setting[Any]) -> str:
    kind = row.type.__name__ + (", component" if row.component else "")
    default = "" if row.default is None else f"`{json.dumps(row.default)}` {row.unit}".rstrip()
    meaning = row.help[:1].upper() + row.help[1:]
    if row.choices:
        meaning += ". One of " + ", ".join(f"`{choice}`" for choice in row.choices)
    if row.minimum is not None or row.maximum is not None:
        low, high = ("" if x is None else f"{x:,}".replace(",", " ") for x in (row.minimum, row.maximum))
        meaning += f". Range: {low} to {high}" if high else f". At least {low}"
    return f"| `{row.name}` | {kind} | {default} | {_cell(meaning)} |"


def exit_codes_page() -> str:
    """Return the page about the exit codes of the command."""
    kinds: list[type[failures.Failure]] = [
        failures.Failure,
        *sorted(failures.Failure.__subclasses__(), key=lambda kind: kind.exit_code),
    ]
    rows = [
        f"| {kind.exit_code} | {kind.http_status} | `{kind.__name__}` | {_EXIT_MEANINGS[kind.__name__]} |"
        for kind in kinds
        if kind.__module__ == failures.__name__
    ]
    return _EXIT_CODES + "\n".join(rows) + "\n" + _MORE_EXIT_CODES


def metrics_page() -> str:
    """Return the page about every metric."""
    parts = [_METRICS]
    for section in SECTIONS:
        rows = [
            f"| `{m.name}{_METRIC_KEYS[m.key]}` | `{m.prometheus}` | {m.kind.value} | {_unit(m)} | {_cell(m.help)} |"
            for m in section.metrics
        ]
        head = f"## {section.title}\n\nComponent: {section.component}. {section.when}\n"
        columns = ["| Heron name | Prometheus name | Kind | Unit | Meaning |", "|---|---|---|---|---|"]
        parts.append("\n".join([head, *columns, *rows]))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _unit(metric: MetricDefinition) -> str:
    if metric.scale in _SCALES:
        return _SCALES[metric.scale]
    words = metric.prometheus.removesuffix("_total").split("_")
    return next((word for word in ("bytes", "seconds", "cores") if word in words[-2:]), "")


def apiserver_schema() -> dict[str, Any]:
    """Return the OpenAPI description of an API server that is never started."""
    with tempfile.TemporaryDirectory() as folder:
        home = prepare_home(Path(folder, "home"))
        options = ApiServerOptions(home, cluster="local")
        place = cluster_config(options, home)
        store, scheduler = store_and_scheduler(options, place)
        api = ApiServer(place, store, cast(Any, scheduler), "local", TokenBook(home))
        return make_apiserver(api).openapi()


def rest_page(title: str, schema: dict[str, Any]) -> str:
    """Return the page about every path of an OpenAPI description."""
    parts = [f"# {title}\n", "The server describes itself at `/openapi.json` and, for people, at `/docs`.\n"]
    for path, methods in sorted(schema["paths"].items()):
        for method, operation in methods.items():
            parts.append(_operation(method.upper(), path, operation))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"## {method} `{path}`", "", _prose(operation.get("summary", ""))]
    description = operation.get("description", "")
    if description and description != operation.get("summary"):
        lines += ["", _prose(description)]
    rows = [
        f"| `{p['name']}` | {p['in']} | {'yes' if p.get('required') else ''} | {_cell(p.get('description', ''))} |"
        for p in operation.get("parameters", ())
    ]
    if rows:
        lines += ["", "| Parameter | In | Required | Meaning |", "|---|---|---|---|", *rows]
    codes = ", ".join(f"`{code}`" for code in sorted(operation.get("responses", {})))
    return "\n".join([*lines, "", f"Responses: {codes}", ""])


def _prose(text: str) -> str:
    """Return a help text as Markdown: each paragraph in one piece, with nothing that reads as HTML."""
    text = re.sub(r"<(?=[A-Za-z/])", "&lt;", text.replace("\b", "").replace("\f", ""))
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(_prose(text).split()).replace("|", "\\|")


if __name__ == "__main__":
    for name, page in pages().items():
        target = Path(sys.argv[1], name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page)
