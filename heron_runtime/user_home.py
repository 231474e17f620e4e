"""Home folder of the user, and the `config.yaml` in it with settings of each cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from heron_runtime.failures import Failure


def home_of_user() -> Path:
    """Return the absolute path in ``HERONRY_HOME``, by default a folder in the user's data folder."""
    given = os.environ.get("HERONRY_HOME")
    if given:
        return Path(given).expanduser().absolute()
    import platformdirs  # here, since it is not needed if HERONRY_HOME is set

    return Path(platformdirs.user_data_dir("heronry")).absolute()


NAME = "config.yaml"
MAX_CHARACTERS = 1024 * 1024  # a megabyte of YAML takes a second to read


def read_config(home: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each cluster, empty if the file does not exist.

    Raises:
        Failure: The file is too large, is not YAML, or has an unexpected structure.
        OSError: The file cannot be read.
    """
    path = home / NAME
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise Failure(f"{path}: not UTF-8 text: {error}", "Correct or remove it.") from None
    if len(text) > MAX_CHARACTERS:
        raise Failure(
            f"{path}: more than {MAX_CHARACTERS} characters",
            "It holds settings; keep large data in files of the topology's package.",
        )
    import yaml  # here, since most processes have no such file and need no YAML

    try:
        sections = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Failure(f"{path}: not YAML: {error}", "Correct or remove it.") from error
    if sections is None:
        return {}
    if not isinstance(sections, dict) or not all(isinstance(settings, dict) for settings in sections.values()):
        raise Failure(f"{path}: unexpected shape", "For each cluster it holds a mapping of keys to values.")
    return sections
