"""Configuration options, errors and the import of optional client libraries, shared by the connectors.

A connector checks its configuration twice: at submission (``config_problems``, which reports all faults), and again in
``initialize``, because the configuration of a class body may not have passed the first check. Problems that only the
running task can detect, such as a missing folder or server, are raised by ``initialize``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from heron_runtime.failures import Failure, UsageError, one_line

Check = Callable[[Any], bool]


class ConnectError(Failure):
    """Error of a source or sink that cannot continue.

    The message states the cause and a remedy. It never contains a secret's value.
    """


class BadConfig(UsageError):
    """Error of an invalid connector configuration."""


class Option:
    """Configuration option of a connector.

    Args:
        key: Key in the configuration.
        what: Description, as part of a sentence.
        kind: Description of valid values.
        fits: Predicate of valid values.
        default: Value if the option is missing.
        required: Whether the option must be given.
    """

    def __init__(
        self, key: str, what: str, kind: str, fits: Check, default: Any = None, required: bool = False
    ) -> None:
        self.key, self.what, self.kind, self.fits = key, what, kind, fits
        self.default, self.required = default, required

    def problem(self, config: Mapping[str, Any]) -> str | None:
        """Return why the configuration's value is missing or invalid, or None if it is valid."""
        value = config.get(self.key)
        if value is None or value == "" or (self.required and value in ([], ())):
            return f"needs config {self.key!r}: {self.what}" if self.required else None
        return None if self.fits(value) else f"config {self.key!r} is {value!r:.80}; it is {self.what}: {self.kind}"

    def of(self, config: Mapping[str, Any]) -> Any:
        """Return the option's value from a configuration that has been checked."""
        value = config.get(self.key)
        return self.default if value is None or value == "" else value


def text(key: str, what: str, default: str | None = None, required: bool = False) -> Option:
    """Return an option for a string."""
    return Option(key, what, "a string", lambda value: isinstance(value, str), default, required)


def whole(key: str, what: str, default: int | None = None, least: int = 1, required: bool = False) -> Option:
    """Return an option for an integer of at least ``least``."""

    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return Option(key, what, f"a whole number from {least} up", fits, default, required)


def seconds(key: str, what: str, default: float) -> Option:
    """Return an option for a positive number of seconds."""

    def fits(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0

    return Option(key, what, "a number of seconds above 0", fits, default)


def choice(key: str, what: str, *words: str) -> Option:
    """Return an option for one of several words. The first one is the default."""
    return Option(key, what, " or ".join(words), lambda value: value in words, words[0])


def names(key: str, what: str, required: bool = False) -> Option:
    """Return an option for a list of names; if it is required, the list must not be empty."""

    def fits(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value)

    return Option(key, what, "a list of names", fits, (), required)


def mapping(key: str, what: str) -> Option:
    """Return an option for a mapping of names to strings."""

    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair)

    return Option(key, what, "a mapping of names to strings", fits, {})


def problems(options: tuple[Option, ...], config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each missing or invalid option."""
    for option in options:
        problem = option.problem(config)
        if problem is not None:
            yield problem


def parse_url(value: Any) -> SplitResult | None:
    """Return the parts of a URL, or None if it is malformed or not text."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        _ = parts and (parts.hostname, parts.port)  # properties that raise if malformed
    except ValueError:
        return None
    return parts


def address_problems(
    config: Mapping[str, Any], url: Option, password_file: Option, schemes: tuple[str, ...], hostless: str = ""
) -> Iterator[str]:
    """Yield a message if a server's address is invalid or contains a password.

    Args:
        config: The topology's configuration.
        url: Option of the address.
        password_file: Option of the password's file, for the message.
        schemes: Valid URL schemes.
        hostless: Scheme of addresses that are paths.
    """
    given = config.get(url.key)
    if not isinstance(given, str) or not given:
        return
    parts = parse_url(given)
    known = parts is not None and parts.scheme in schemes and (parts.port is None or parts.port > 0)
    if parts is not None and (parts.password or "password=" in parts.query):
        yield (
            f"config {url.key!r} holds a password, which a topology's definition shows: put it into a file and name "
            f"that in {password_file.key!r}"
        )
    elif not known or (parts is not None and not parts.hostname and parts.scheme != hostless):
        yield f"config {url.key!r} is {given!r:.80}; it is {url.what}"


def require(component: Any, config: Mapping[str, Any]) -> None:
    """Check a component's configuration. Raises BadConfig with all messages of ``config_problems``."""
    problems = list(component.config_problems(config))
    if problems:
        raise BadConfig(f"{type(component).__name__} {'; '.join(problems)}")


def secret_of(path: str, key: str) -> str:
    """Return the content of a secret's file without surrounding whitespace. Raises ConnectError."""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConnectError(
            f"the file of {key!r}, {path}, cannot be read ({reason}): it must be there on each host, readable by the "
            "user that the topology's code runs as"
        ) from None


def step_name(context: Any) -> str:
    """Return a name that is unique to the component within its topology, safe as part of a file name.

    Topology and component are separated by the name's only dot.
    """
    return step_name_of(context.get_topology_name(), context.get_component_id())


def step_name_of(*parts: str) -> str:
    """Return the name of a step from its parts."""
    return ".".join(part.replace("%", "%25").replace(".", "%2E") for part in parts)


def driver(module: str, system: str, package: str, extra: str, error: type[Exception] = ConnectError) -> Any:
    """Import a client library's module.

    Args:
        module: Name of the module.
        system: Name of the system it is for, for messages.
        package: Name of the package that contains the module.
        extra: Extra of heronry that installs the package.
        error: Class of the exception to raise if the import fails.

    Returns:
        The module.

    Raises:
        ConnectError: The module cannot be imported. ``error`` replaces this class.
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise error(
            f"{system} needs {package}, which cannot be imported ({one_line(str(cause), 200)}): name {package} in the "
            f"topology's requirements, or on each host: pip install 'heronry[{extra}]'"
        ) from None


def arrow_driver(system: str, extra: str, error: type[Exception] = ConnectError) -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet. Raises ``error`` if they cannot be imported."""
    arrow, parquet = (driver(name, system, "pyarrow", extra, error) for name in ("pyarrow", "pyarrow.parquet"))
    return arrow, parquet
