"""The envelope around every answer: Heron's own, with the fields it had before and after 0.20.5."""

from __future__ import annotations

import hashlib
import json
from typing import Any

SUCCESS = "success"
FAILURE = "failure"


def envelope(result: Any, message: str, seconds: float, version: str, *, failed: bool = False) -> dict[str, Any]:
    """An answer. ``seconds`` is how long it took."""
    return {
        "status": FAILURE if failed else SUCCESS,
        "message": message,
        "version": version,
        "tracker_version": version,
        "executiontime": seconds,
        "result": result,
    }


def entity_tag(result: Any) -> str:
    """A weak ETag of a result: the same for every replica, whatever the envelope says of time."""
    text = json.dumps(result, sort_keys=True, separators=(",", ":"), default=str)
    return f'W/"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


def tag_matches(if_none_match: str, tag: str) -> bool:
    """True if the client has this version already (weak comparison, as RFC 9110 wants it for GET)."""
    given = [part.strip() for part in if_none_match.split(",")]
    bare = tag.removeprefix("W/")
    return "*" in given or any(part.removeprefix("W/") == bare for part in given)
