"""Figures of the source and the documentation that may not grow worse, and their limits in ratchet.toml.

    .venv/bin/python tests/contract/ratchet.py             print figures, limits and what is counted
    .venv/bin/python tests/contract/ratchet.py --tighten   lower each limit to the figure of this tree

No command loosens a limit. CONTRIBUTING.md describes how one is loosened.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "steptime"
LIMITS = Path(__file__).with_name("ratchet.toml")
BANNED = {
    "take apart": r"(?:take|takes|taken|taking|took) (?:\w+ )?apart",
    "far end": r"far ends?",
    "sign of life": r"signs? of life",
    "says, tells": r"(?:says|tells)",
    "held against": r"(?:held|holds?) (?:\w+ )?against",
    "stands": r"stands?(?! for)",
    "in words": r"in words",
    "room": r"rooms?(?! for)",
    "nobody": r"nobody(?:'s)?",
    "is no": r"(?:is|are) no",
    "None where": r"None where",
    "moves nothing": r"moves? nothing",
    "left the rendezvous": r"left the rendezvous",
}
"""Patterns of words that a reader outside of this project would not expect, by their name in ratchet.toml."""
AT_LEAST = {"median_lines"}
"""Figures whose limit is a floor: a median file that shrinks means concepts in fragments.

It is moved by hand, since files that are shortened lower it too.
"""
BANNED_IN_PAGES = {
    **BANNED,
    "wins over the line": r"wins over the line",
    "stands beside the line": r"stands beside the line",
    "a finding and no": r"a finding and no",
    "says so of": r"says so of",
}
"""Likewise, of pages that people write."""
FRAMEWORKS = "src/steptime/frameworks/*/"
"""Folders of a family, which are measured one by one: another member is no growth of the rest."""
OF_ALL = {
    "docs_and_package_readmes": ("docs/**/*.md", "src/**/README.md"),
    "package_readmes": ("src/**/README.md",),
    "readme": ("README.md",),
    "contributing": ("CONTRIBUTING.md",),
    "accuracy": ("docs/accuracy/*.md",),
}
"""Pages whose words are added up, those of single frameworks left out, by the name of the figure."""
OF_THE_LONGEST = {"a_framework": f"{FRAMEWORKS}README.md", "a_decision": "docs/decisions/0*.md"}
"""Pages of which only the longest is limited, by the name of the figure."""
WRITTEN = ("docs/**/*.md", "src/**/README.md", "*.md")
GENERATED = {"docs/study-keys.md", "docs/report-keys.md"}

Figure = tuple[float, list[str]]
"""A number, and what was counted, a line each."""


@cache
def sources() -> tuple[Path, ...]:
    """Return every Python file of the package."""
    return tuple(sorted(SOURCE.rglob("*.py")))


def lines_of(path: Path) -> int:
    """Return the number of lines of a file."""
    return path.read_text().count("\n")


def name_of(path: Path) -> str:
    """Return a path as it is printed."""
    return path.relative_to(ROOT).as_posix()


def files_of_a_framework() -> Figure:
    """Python files in the largest folder of a framework."""
    counts = {name_of(folder): len(list(folder.glob("*.py"))) for folder in ROOT.glob(FRAMEWORKS)}
    return max(counts.values()), [f"{folder}: {count}" for folder, count in sorted(counts.items())]


def median_lines() -> Figure:
    """Lines of the median Python file, empty ones left out."""
    return statistics.median(count for path in sources() if (count := lines_of(path))), []


def longest_file() -> Figure:
    """Lines of the longest Python file."""
    longest = max(sources(), key=lines_of)
    return lines_of(longest), [name_of(longest)]


@cache
def classes() -> tuple[tuple[Path, ast.ClassDef], ...]:
    """Return every class with its file, nested ones and those in functions too."""
    found = []
    for path in sources():
        left: list[ast.AST] = [ast.parse(path.read_text())]
        while left:
            node = left.pop()
            # Statements alone: expressions hold no class and most of the nodes.
            blocks = (getattr(node, name, []) for name in ("body", "orelse", "finalbody", "handlers", "cases"))
            left += [each for block in blocks if isinstance(block, list) for each in block]
            if isinstance(node, ast.ClassDef):
                found.append((path, node))
    return tuple(found)


def repeated_class_names() -> Figure:
    """Names of classes in more than one file; private and nested ones count, a leading underscore does not."""
    files = defaultdict(set)
    for path, node in classes():
        files[node.name.lstrip("_")].add(name_of(path))
    found = [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(files.items()) if len(paths) > 1]
    return len(found), found


def classes_with_bounds() -> Figure:
    """Classes of the core with a field for each end of an interval, beside Interval and IntervalOverLaunches."""
    ends = [{f"{stem}low{unit}", f"{stem}high{unit}"} for stem in ("", "factor_") for unit in ("", "_s")]
    found = []
    for path, node in classes():
        if path.name != "json_form.py":
            names = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
            found += [f"{name_of(path)}: {node.name}"] if any(pair <= names for pair in ends) else []
    return len(found), found


def pages(*patterns: str) -> list[Path]:
    """Return the files of some patterns."""
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)})


def words_of(path: Path) -> int:
    """Return the number of words of a page, as `wc -w` counts them."""
    return len(path.read_text().split())


def words_of_all(*patterns: str) -> Figure:
    """Words of the pages of some patterns together; READMEs of single frameworks left out."""
    shared = set(pages(*patterns)) - set(pages(OF_THE_LONGEST["a_framework"]))
    return sum(words_of(path) for path in shared), []


def words_of_the_longest(pattern: str) -> Figure:
    """Words of the longest page of a pattern."""
    counts = {name_of(path): words_of(path) for path in pages(pattern)}
    return max(counts.values()), [f"{name}: {count}" for name, count in counts.items()]


@cache
def prose() -> tuple[tuple[str, str], ...]:
    """Return places and texts: strings and comments of the source, templates, studies, and pages."""
    found = [(f"{name_of(path)}:{line}", text) for path in sources() for line, text in strings_of(path)]
    others = [path for form in ("*.j2", "*.yaml", "*.toml", "*.md") for path in sorted(SOURCE.rglob(form))]
    others += [path for path in pages("docs/**/*.md", "*.md") if path.name != "CHANGELOG.md"]
    return (*found, *(each for path in [*others, ROOT / "pyproject.toml"] for each in numbered(path)))


@cache
def written() -> tuple[tuple[str, str], ...]:
    """Return places and lines of the pages that people write."""
    return tuple(each for path in pages(*WRITTEN) if name_of(path) not in GENERATED for each in numbered(path))


def numbered(path: Path) -> list[tuple[str, str]]:
    """Return the place and the text of every line of a file."""
    return [(f"{name_of(path)}:{line}", text) for line, text in enumerate(path.read_text().splitlines(), 1)]


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of every string and comment."""
    literal = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in literal:
            yield token.start[0], token.string


def banned(pattern: str, texts: Iterable[tuple[str, str]], flags: re.RegexFlag = re.NOFLAG) -> Figure:
    """Occurrences of a banned pattern in texts."""
    spaced = pattern.replace(" ", r"\s+")
    word = re.compile(rf"(?<![\w-]){spaced}(?![\w-])", flags)
    found = [f"{place}: {' '.join(match[0].split())}" for place, text in texts for match in word.finditer(text)]
    return len(found), found


FIGURES: dict[str, dict[str, Callable[[], Figure]]] = {
    "source": {
        measured.__name__: measured
        for measured in (
            files_of_a_framework,
            median_lines,
            longest_file,
            repeated_class_names,
            classes_with_bounds,
        )
    },
    "words": {
        **{name: partial(words_of_all, *patterns) for name, patterns in OF_ALL.items()},
        **{name: partial(words_of_the_longest, pattern) for name, pattern in OF_THE_LONGEST.items()},
    },
    "banned": {name: lambda pattern=pattern: banned(pattern, prose()) for name, pattern in BANNED.items()},
    "banned_in_pages": {
        name: lambda pattern=pattern: banned(pattern, written(), re.IGNORECASE)
        for name, pattern in BANNED_IN_PAGES.items()
    },
}
"""Every figure, by its table and key in ratchet.toml."""


def limits() -> dict[str, dict[str, float]]:
    """Return the limits by table and key."""
    return tomllib.loads(LIMITS.read_text())


def is_worse(name: str, figure: float, limit: float) -> bool:
    """Whether a figure is beyond its limit."""
    return figure < limit if name in AT_LEAST else figure > limit


def tightened(text: str, figures: dict[tuple[str, str], float]) -> str:
    """Return the text of ratchet.toml with each limit lowered to its figure, or to its goal; comments stay.

    Args:
        text: of ratchet.toml.
        figures: by table and name.
    """
    table = ""

    def move(match: re.Match[str]) -> str:
        nonlocal table
        table = match["table"] or table
        if match["table"] or match["key"] in AT_LEAST:
            return match[0]
        limit, goal, figure = float(match["limit"]), match["goal"], figures[table, match["key"].strip('"')]
        lowest = max(figure, float(goal.replace(",", ""))) if goal else figure
        return f"{match['key']} = {min(limit, lowest):.10g}{match['comment']}"

    heading = r"\[(?P<table>\w+)\]"
    limited = r'(?P<key>\w+|"[^"]+") = (?P<limit>[\d.]+)(?P<comment>(?:  # goal: (?P<goal>[\d,]*\d))?)'
    return re.sub(rf"(?m)^(?:{heading}|{limited})", move, text)


def main(arguments: list[str]) -> None:
    """Print all figures, and tighten the limits if asked to."""
    kept, figures = limits(), {}
    for table, measures in FIGURES.items():
        for name, measure in measures.items():
            figures[table, name], counted = measure()
            sys.stdout.write(f"{table:16}{name:30}{figures[table, name]:>9.10g}, limit {kept[table][name]:.10g}\n")
            if "--tighten" not in arguments:
                sys.stdout.writelines(f"    {line}\n" for line in counted)
    if "--tighten" in arguments:
        LIMITS.write_text(tightened(LIMITS.read_text(), figures))


if __name__ == "__main__":
    main(sys.argv[1:])
