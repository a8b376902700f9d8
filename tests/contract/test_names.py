"""Names in the source: files that are nouns, and no words that only this project ever used."""

import re
from pathlib import Path

import pytest

import steptime

SOURCE = Path(steptime.__file__).parent
ROOT = SOURCE.parents[1]
FILES = sorted(SOURCE.rglob("*.py"))
NOUNS_IN_ING = {
    "importance_sampling",
    "input_ceiling",
    "message_timing",
    "training",
    "ping",
    "ranking",
    "scaling",
    "timing",
    "waiting",
}
"""Names of files that end in -ing and are nouns of the field."""
DIALECT = [
    r"(?:in|a|the|one|that|its|each|every|framework|crosses) rooms?",  # of space there may be room
    *["seam", "seams", "rung", "rungs", "ladder", "climb", "carriage", "wing", "crew", "crowd", "scene"],
    *["anatomy", "gated", "wish", "circumstances"],
]
TESTS = [
    path
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if path.name not in {Path(__file__).name, "renamed.py"}  # which holds the words of old records
]
"""Patterns of words that stood for things which the field calls otherwise."""
HISTORY_LINK = re.compile(r"decisions/[\w-]+\.md")
HISTORY = ("docs/decisions", "docs/accuracy")
"""Folders of pages that are not edited later, since they say what was decided and measured at their time."""
PAGES = [
    path
    for path in [*sorted((ROOT / "docs").rglob("*.md")), *sorted(SOURCE.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    if not path.relative_to(ROOT).as_posix().startswith(HISTORY) and path.name != "CHANGELOG.md"
]


def test_files_are_named_by_nouns():
    """No file is named after an activity, but for those whose activity is a noun of the field."""
    assert {path.stem for path in FILES if path.stem.endswith("ing")} <= NOUNS_IN_ING


@pytest.mark.parametrize("word", DIALECT)
def test_a_word_of_no_other_project_is_not_used(word):
    """Neither the source, its tests nor its documentation uses the word, alone or as a part of a name."""
    pattern = re.compile(rf"(?<![a-z]){word}(?![a-z])", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*FILES, *PAGES, *TESTS]
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(HISTORY_LINK.sub("", line))
    ]

    assert found == []


def test_no_two_files_of_tests_have_one_name():
    """Pytest imports each by its bare name, and would run the first alone."""
    names = [path.stem for path in (ROOT / "tests").rglob("*.py") if path.stem != "conftest"]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
