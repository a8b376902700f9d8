"""Every relative link of every Markdown page leads somewhere, and so does every heading it names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_OWN = ("docs", "src", "tests", "benchmarks", "examples", "changelog.d")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in _OWN for page in (ROOT / folder).rglob("*.md"))])
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def links(text: str) -> list[str]:
    """Return the targets of all links outside code."""
    return [first or second for first, second in _LINK.findall(_CODE.sub("", text))]


def anchors(text: str) -> set[str]:
    """Return what the headings of a page are linked by: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(
        r"^#+ (.+?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """Return the relative links of ``page`` that lead nowhere."""
    wrong = []
    for link in links(page.read_text(encoding="utf-8")):
        if _ELSEWHERE.match(link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        missing_anchor = anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8"))
        if not target.exists() or missing_anchor:
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_broken_link(page):
    assert broken(page) == []


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path):
    (tmp_path / "there.md").write_text("# A title, here\n```\n# no title\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-title-here) [c](gone.md) [d](there.md#no-title) [e](https://example.org/x)\n"
        "`[f](code.md)` ![g](gone.png)\n\n[h]: gone.txt\n"
    )

    assert broken(page) == ["gone.md", "there.md#no-title", "gone.png", "gone.txt"]


def test_the_version_to_cite_is_the_version_of_the_package():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/steptime/__init__.py").read_text(encoding="utf-8"))

    assert cited[1] == version[1]
