"""The documentation stays short, and uses the words of the field."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
READMES = sorted((ROOT / "src").rglob("README.md"))
OF_FRAMEWORKS = sorted((ROOT / "src" / "steptime" / "frameworks").glob("*/README.md"))
"""Limited one by one: another framework adds a README, and the others need not become shorter."""
GENERATED = {DOCS / "study-keys.md", DOCS / "report-keys.md"}
WRITTEN = [
    *(page for page in PAGES if page not in GENERATED),
    *READMES,
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
]
DIALECT = [
    *["nobody", "far end", "sign of life", "held against", "take apart", "taken apart", "takes apart", "in words"],
    *["wins over the line", "stands beside the line", "a finding and no", "is no [a-z]+", "says so of"],
]
"""Words of this project alone; CONTRIBUTING.md asks for plain sentences."""


def words(*pages: Path) -> int:
    """Return how many words pages have, as ``wc -w`` counts them."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


@pytest.mark.parametrize(
    ("pages", "limit"),
    [
        pytest.param([*PAGES, *sorted({*READMES} - {*OF_FRAMEWORKS})], 27_700, id="docs and READMEs of packages"),
        *[pytest.param([page], 400, id=page.parent.name) for page in OF_FRAMEWORKS],
        pytest.param([ROOT / "README.md"], 700, id="README"),
        pytest.param(sorted((DOCS / "accuracy").glob("*.md")), 1500, id="accuracy"),
        pytest.param([ROOT / "CONTRIBUTING.md"], 700, id="CONTRIBUTING"),
        *[pytest.param([page], 200, id=page.stem) for page in sorted((DOCS / "decisions").glob("0*.md"))],
    ],
)
def test_pages_have_at_most_so_many_words(pages, limit):
    assert words(*pages) <= limit


def test_there_are_at_most_sixteen_decisions():
    """A further one supersedes or joins another."""
    assert 0 < len(list((DOCS / "decisions").glob("0*.md"))) <= 16


def test_an_entry_of_the_changelog_is_one_line():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [line for line in text.split("## [", 1)[1].splitlines() if line and not line.startswith(("#", "["))]
    assert [line for line in entries[1:] if line.startswith(" ") or len(line) > 240] == []


def test_the_changelog_has_room_for_what_is_not_released():
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("word", DIALECT)
def test_a_word_of_this_project_alone_is_not_used(word):
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line}"
        for page in WRITTEN
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
