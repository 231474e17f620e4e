"""What connectors share: their configuration, read with clear words, and the error that they raise.

A connector says what is wrong with its configuration twice: at submit (``config_problems``, all faults at once), and
again in ``initialize``, for a class body's configuration may have come by other ways. What only the running task can
see, a folder or a server that is not there, is raised by ``initialize``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from heron_runtime.failures import Failure, UsageError

Check = Callable[[Any], bool]


class ConnectError(Failure):
    """A source or sink cannot go on. The message names the cause and the cure; it never holds a value of a secret."""


class BadConfig(UsageError):
    """A connector is configured wrongly."""


class Option:
    """One key of a connector's configuration. ``what``: what it is, as a part of a sentence; ``fits``: whether a value
    will do, ``kind`` in words. Without ``default`` it must be given."""

    def __init__(
        self, key: str, what: str, kind: str, fits: Check, default: Any = None, required: bool = False
    ) -> None:
        self.key, self.what, self.kind, self.fits = key, what, kind, fits
        self.default, self.required = default, required

    def problem(self, config: Mapping[str, Any]) -> str | None:
        """Why it cannot be had from this configuration."""
        value = config.get(self.key)
        if value is None or value == "" or (self.required and value in ([], ())):
            return f"needs config {self.key!r}: {self.what}" if self.required else None
        return None if self.fits(value) else f"config {self.key!r} is {value!r:.80}; it is {self.what}: {self.kind}"

    def of(self, config: Mapping[str, Any]) -> Any:
        """Its value. The configuration must have been checked."""
        value = config.get(self.key)
        return self.default if value is None or value == "" else value


def text(key: str, what: str, default: str | None = None, required: bool = False) -> Option:
    """A string."""
    return Option(key, what, "a string", lambda value: isinstance(value, str), default, required)


def whole(key: str, what: str, default: int | None = None, least: int = 1, required: bool = False) -> Option:
    """A whole number."""

    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return Option(key, what, f"a whole number from {least} up", fits, default, required)


def seconds(key: str, what: str, default: float) -> Option:
    """A time."""

    def fits(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0

    return Option(key, what, "a number of seconds above 0", fits, default)


def choice(key: str, what: str, *words: str) -> Option:
    """One of these words; the first where nothing is said."""
    return Option(key, what, " or ".join(words), lambda value: value in words, words[0])


def names(key: str, what: str, required: bool = False) -> Option:
    """Names, as a list; ``required``: one at the least."""

    def fits(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value)

    return Option(key, what, "a list of names", fits, (), required)


def mapping(key: str, what: str) -> Option:
    """Names to strings."""

    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair)

    return Option(key, what, "a mapping of names to strings", fits, {})


def problems(options: tuple[Option, ...], config: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each option that is missing or wrong."""
    for option in options:
        problem = option.problem(config)
        if problem is not None:
            yield problem


def parse_url(value: Any) -> SplitResult | None:
    """Return the parts of a URL, None if it is malformed or not text."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        _ = parts and (parts.hostname, parts.port)  # which are parsed when they are read
    except ValueError:
        return None
    return parts


def address_problems(
    config: Mapping[str, Any], url: Option, password_file: Option, schemes: tuple[str, ...], hostless: str = ""
) -> Iterator[str]:
    """Why a configuration's server may not be named so: no scheme of these, a password. ``hostless``: the scheme of
    addresses that are paths."""
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
    """Raises BadConfig with all that ``config_problems`` finds."""
    found = list(component.config_problems(config))
    if found:
        raise BadConfig(f"{type(component).__name__} {'; '.join(found)}")


def secret_of(path: str, key: str) -> str:
    """The one line of a secret's file. Raises ConnectError."""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConnectError(
            f"the file of {key!r}, {path}, cannot be read ({reason}): it must be there on each host, readable by the "
            "user that the topology's code runs as"
        ) from None


def step_name(context: Any) -> str:
    """What tells this component of this topology from all others, safe as a part of a file name; the dot between the
    two names is the only one."""
    return step_name_of(context.get_topology_name(), context.get_component_id())


def step_name_of(*parts: str) -> str:
    """The same of these two."""
    return ".".join(part.replace("%", "%25").replace(".", "%2E") for part in parts)
