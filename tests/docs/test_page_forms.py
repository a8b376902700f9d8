"""The changelog and the decisions keep their form; tests/contract/ratchet.py limits and searches the words of pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_there_are_at_most_sixteen_decisions():
    """A further one supersedes or joins another."""
    assert 0 < len(list((ROOT / "docs" / "decisions").glob("0*.md"))) <= 16


def test_an_entry_of_the_changelog_is_one_line():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [line for line in text.split("## [", 1)[1].splitlines() if line and not line.startswith(("#", "["))]
    assert [line for line in entries[1:] if line.startswith(" ") or len(line) > 240] == []


def test_the_changelog_has_room_for_what_is_not_released():
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
