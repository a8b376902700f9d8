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
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "steptime"
LIMITS = Path(__file__).with_name("ratchet.toml")
SHORT_LINES = 80
"""A file below this length that one module alone imports should be a part of that module."""
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
WORDS_OF_PROSE = {"docs": "docs/**/*.md", "readme": "README.md", "package_readmes": "src/**/*.md"}
"""Files whose words are counted, by the name of the figure."""

FRAMEWORKS = "src/steptime/frameworks/*/"
"""Folders of a family, which are measured one by one: another member is no growth of the rest."""

Figure = tuple[float, list[str]]
"""A number, and what was counted, a line each."""


@cache
def sources() -> tuple[Path, ...]:
    """Return every Python file of the package."""
    return tuple(sorted(SOURCE.rglob("*.py")))


def shared_sources() -> list[Path]:
    """Return the Python files of the package that belong to no single framework."""
    folders = set(ROOT.glob(FRAMEWORKS))
    return [path for path in sources() if not folders & set(path.parents)]


def lines_of(path: Path) -> int:
    """Return the number of lines of a file."""
    return path.read_text().count("\n")


def name_of(path: Path) -> str:
    """Return a path as it is printed."""
    return path.relative_to(ROOT).as_posix()


def source_files() -> Figure:
    """Python files in src, those of single frameworks left out."""
    return len(shared_sources()), []


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


def lonely_files() -> Figure:
    """Files of fewer than SHORT_LINES lines that exactly one module imports, those of single frameworks left out."""
    graph = grimp.build_graph("steptime", cache_dir=None)
    found = []
    for path in shared_sources():
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        if path.name != "__init__.py" and module in graph.modules and lines_of(path) < SHORT_LINES:
            importers = graph.find_modules_that_directly_import(module)
            if len(importers) == 1:
                found.append(f"{name_of(path)}: {lines_of(path)} lines, imported by {importers.pop()}")
    return len(found), found


def repeated_class_names() -> Figure:
    """Names of classes in more than one file; private and nested ones count, a leading underscore does not."""
    files = defaultdict(set)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name.lstrip("_")].add(name_of(path))
    found = [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(files.items()) if len(paths) > 1]
    return len(found), found


def classes_with_bounds() -> Figure:
    """Classes of the core with a field for each end of an interval, beside Interval and IntervalOverLaunches."""
    ends = [{f"{stem}low{unit}", f"{stem}high{unit}"} for stem in ("", "factor_") for unit in ("", "_s")]
    found = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and path.name != "json_form.py":
                names = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
                found += [f"{name_of(path)}: {node.name}"] if any(pair <= names for pair in ends) else []
    return len(found), found


def words_in(pattern: str) -> Figure:
    """Words of the files of a pattern, as `wc -w` counts them; READMEs of single frameworks left out."""
    pages = set(ROOT.glob(pattern)) - set(ROOT.glob(f"{FRAMEWORKS}README.md"))
    return sum(len(path.read_text().split()) for path in pages), []


@cache
def prose() -> tuple[tuple[str, str], ...]:
    """Return places and texts: strings and comments of the source, templates, studies, and pages."""
    found = [(f"{name_of(path)}:{line}", text) for path in sources() for line, text in strings_of(path)]
    pages = [path for form in ("*.j2", "*.yaml", "*.toml", "*.md") for path in sorted(SOURCE.rglob(form))]
    pages += [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "pyproject.toml"]
    for path in pages:
        if path.name != "CHANGELOG.md":
            found += [(f"{name_of(path)}:{line}", text) for line, text in enumerate(path.read_text().splitlines(), 1)]
    return tuple(found)


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of every string and comment."""
    literal = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in literal:
            yield token.start[0], token.string


def banned(pattern: str) -> Figure:
    """Occurrences of a banned pattern in the prose."""
    spaced = pattern.replace(" ", r"\s+")
    word = re.compile(rf"(?<![\w-]){spaced}(?![\w-])")
    found = [f"{place}: {' '.join(match[0].split())}" for place, text in prose() for match in word.finditer(text)]
    return len(found), found


FIGURES: dict[str, dict[str, Callable[[], Figure]]] = {
    "source": {
        measured.__name__: measured
        for measured in (
            source_files,
            files_of_a_framework,
            median_lines,
            longest_file,
            lonely_files,
            repeated_class_names,
            classes_with_bounds,
        )
    },
    "words": {name: lambda pattern=pattern: words_in(pattern) for name, pattern in WORDS_OF_PROSE.items()},
    "banned": {name: lambda pattern=pattern: banned(pattern) for name, pattern in BANNED.items()},
}
"""Every figure, by its table and key in ratchet.toml."""


def limits() -> dict[str, dict[str, float]]:
    """Return the limits by table and key."""
    return tomllib.loads(LIMITS.read_text())


def is_worse(name: str, figure: float, limit: float) -> bool:
    """Whether a figure is beyond its limit."""
    return figure < limit if name in AT_LEAST else figure > limit


def tightened(text: str, figures: dict[str, float]) -> str:
    """Return the text of ratchet.toml with each limit lowered to its figure, or to its goal; comments stay."""

    def move(match: re.Match[str]) -> str:
        name, limit, goal = match["key"].strip('"'), float(match["limit"]), match["goal"]
        if name in AT_LEAST:
            return match[0]
        lowest = max(figures[name], float(goal.replace(",", ""))) if goal else figures[name]
        return f"{match['key']} = {min(limit, lowest):.10g}{match['comment']}"

    line = r'(?m)^(?P<key>\w+|"[^"]+") = (?P<limit>[\d.]+)(?P<comment>(?:  # goal: (?P<goal>[\d,]*\d))?)'
    return re.sub(line, move, text)


def main(arguments: list[str]) -> None:
    """Print all figures, and tighten the limits if asked to."""
    kept, figures = limits(), {}
    for table, measures in FIGURES.items():
        for name, measure in measures.items():
            figures[name], counted = measure()
            sys.stdout.write(f"{table:8}{name:30}{figures[name]:>9.10g}, limit {kept[table][name]:.10g}\n")
            if "--tighten" not in arguments:
                sys.stdout.writelines(f"    {line}\n" for line in counted)
    if "--tighten" in arguments:
        LIMITS.write_text(tightened(LIMITS.read_text(), figures))


if __name__ == "__main__":
    main(sys.argv[1:])
