"""Registry of views by name: a small file for each view in ``HERONRY_HOME/pipeline/views`` (``heron pipeline run``)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heron_runtime.files import replace_file
from heron_runtime.model.ids import is_safe_name
from heron_runtime.user_home import home_of_user
from heronry.pipeline.views import NoSuchView, ViewError

UNKNOWN = (
    "FILE must exist, or VIEW be registered (see `heron pipeline views`); `heron pipeline top`, `keys` and `series` "
    "also take the folder of a view."
)


@dataclass(frozen=True)
class Registered:
    """Registered view, with the program whose batch ``heron pipeline run NAME`` runs again."""

    name: str
    path: str  # the folder of the view
    file: str = ""  # the program
    program: str = ""
    arguments: tuple[str, ...] = ()
    input_paths: tuple[str, ...] = ()
    input_format: str = ""


def views_folder(home: Path | None = None) -> Path:
    """Return the folder of the registry; ``home`` defaults to HERONRY_HOME or the user's data folder."""
    return (home or home_of_user()).absolute() / "pipeline" / "views"


def register(view: Registered, home: Path | None = None) -> None:
    """Register a view, or replace its registration. Raises OSError."""
    folder = views_folder(home)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{view.name}.json", json.dumps(asdict(view), indent=2))


def registered(name: str, home: Path | None = None) -> Registered:
    """Return the registration of a view. Raises NoSuchView, ViewError."""
    file = views_folder(home) / f"{name}.json"
    if not is_safe_name(name):
        raise NoSuchView(f"invalid view name {name!r}", UNKNOWN)
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
        lists = {name: tuple(document.get(name, ())) for name in ("arguments", "input_paths")}
        return Registered(**{**document, **lists})
    except FileNotFoundError:
        known = ", ".join(view.name for view in all_registered(home)) or "none yet"
        raise NoSuchView(
            f"unknown view {name!r} (known: {known}); `heron pipeline run FILE PROGRAM` creates a program's views",
            UNKNOWN,
        ) from None
    except (ValueError, TypeError) as error:
        raise ViewError(f"{file} is not understood: {error}") from error


def all_registered(home: Path | None = None) -> list[Registered]:
    """Return all registered views, ordered by name. Raises ViewError."""
    folder = views_folder(home)
    names = sorted(file.stem for file in folder.glob("*.json")) if folder.is_dir() else []
    return [registered(name, home) for name in names if is_safe_name(name)]
