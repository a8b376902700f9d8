"""The changelog and the decisions keep their form; tests/contract/ratchet.py limits and searches the words of pages."""

import re
from pathlib import Path

from steptime.runner.extending.template import write_workload

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


def test_the_page_of_own_modules_shows_what_is_written(tmp_path):
    module, study = write_workload("mine", tmp_path, "pytorch")
    page = (ROOT / "docs" / "own-module.md").read_text(encoding="utf-8")
    (functions,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (keys,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)

    assert [line for line in functions.splitlines() if line not in module.read_text().splitlines()] == []
    assert keys == study.read_text()
