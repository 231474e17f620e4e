"""Stories have their recorded outcomes. ``HERONRY_REWRITE_STORIES=1`` records them again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .stories import Story, StoryError, play

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_has_its_recorded_outcome(path: Path) -> None:
    now = play(path)
    if os.environ.get("HERONRY_REWRITE_STORIES"):
        path.write_text(now)
    assert now == path.read_text()


def test_story_with_a_wrong_expectation_fails() -> None:
    story = Story()
    story.run("topology chain containers=1")
    story.run("emit 3")
    story.run("rest")
    with pytest.raises(StoryError, match="expected acked=4, it is 3"):
        story.run("expect acked=4")
    with pytest.raises(StoryError, match="no command 'jump'"):
        story.run("jump")
