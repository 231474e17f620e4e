"""Where the data of this user lives: the home of local clusters, histories, views, what streams were run."""

from __future__ import annotations

import os
from pathlib import Path


def home_of_user() -> Path:
    """``HERONRY_HOME``, by default in the user's data folder; absolute."""
    given = os.environ.get("HERONRY_HOME")
    if given:
        return Path(given).expanduser().absolute()
    import platformdirs  # here, since who has said where needs no search

    return Path(platformdirs.user_data_dir("heronry")).absolute()
