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

from radon.complexity import cc_visit_ast

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
    "phrases of a first hour": r"nothing else is said|took itself out|computes something else|best null"
    r"|takes not settled|as far as the path exists|without a clock|time against best|by the native loader"
    r"|environments made|behind the last step|sign right in|efficiency of 1 worker|What does it learn|Start goes on"
    r"|not settled [(]|[Uu]ndecided whether|faster than expected by|without a worker does nothing|from which srun takes"
    r"|mostly: residual|[Ww]ins? over|to go on[,:]|go on with:|same command goes on|as wide an interval|holds? together"
    r"|same sweep goes on|small letters, digits and '_'|that mends it|As you start it|is to be different|or say --all"
    r"|at least so often|[Aa]t most so often|measure anew|shows nothing of (?:it|them)|take one of both away"
    r"|nothing of it was left|type it anew|of which no more can|to begin anew|goes on with letters|to go on at once"
    r"|nothing is said of|samples so many times|say of which hosts|hold the whole study|has room for all"
    r"|lie beside all|reaches their sockets|parts are longer than they",
}
"""Patterns of words that a reader outside of this project would not expect, by their name in ratchet.toml."""
GROUP_LINES = 35
"""Lines from which a group of definitions counts as a concept of its own."""
COMPLEX = 20
"""Of radon's cyclomatic complexity, which counts branches, ``and``, ``or`` and comprehensions."""
VAGUE = re.compile(r"_*(?:found|said|told|taken_apart|gone_on|nothing)(?:_s)?", re.IGNORECASE)
"""Identifiers that do not name what they hold."""
NO_VERB = re.compile(
    r"_*one|_*(?:of|by|about|against|among|around|behind|beside|between|for|within)_\w+", re.IGNORECASE
)
"""Names of functions that begin with a preposition."""
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


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


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


def unrelated_groups() -> Figure:
    """Files with two or more groups of GROUP_LINES lines whose definitions use no name of each other."""
    counted = []
    for path in sources():
        sizes = [size for size in group_sizes(tree_of(path)) if size >= GROUP_LINES]
        counted += [f"{name_of(path)}: {', '.join(map(str, sizes))} lines"] if len(sizes) > 1 else []
    return len(counted), counted


def group_sizes(tree: ast.Module) -> list[int]:
    """Return the lines of each group of definitions of a module that are joined by the names they use, largest first.

    A string that is an identifier counts as a use, as in ``__all__`` or an annotation.
    """
    groups: list[tuple[set[str], set[str], int]] = []
    for statement in tree.body:
        if isinstance(statement, ast.Expr):  # the text below a constant is part of it
            if groups:
                groups[-1] = (*groups[-1][:2], groups[-1][2] + lines_of_node(statement))
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.If):
            continue
        used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        used |= {node.value for node in ast.walk(statement) if isinstance(node, ast.Constant) and is_name(node.value)}
        merged, lines = defined_by(statement), lines_of_node(statement)
        joined = [group for group in groups if group[0] & used or group[1] & merged]
        groups = [group for group in groups if group not in joined]
        for names, uses, size in joined:
            merged, used, lines = merged | names, used | uses, lines + size
        groups.append((merged, used, lines))
    return sorted((size for _, _, size in groups), reverse=True)


def is_name(value: object) -> bool:
    """Whether a constant is text that could be the name of a definition."""
    return isinstance(value, str) and value.isidentifier()


def defined_by(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def lines_of_node(statement: ast.stmt) -> int:
    """Return the number of lines of a statement, its decorators counted."""
    first = min([statement.lineno, *(node.lineno for node in getattr(statement, "decorator_list", []))])
    return (statement.end_lineno or first) - first + 1


def complex_functions() -> Figure:
    """Functions and methods of COMPLEX or more."""
    counted = [
        f"{name_of(path)}: {block.name}, {block.complexity}"
        for path in sources()
        for block in cc_visit_ast(tree_of(path))
        if block.letter != "C" and block.complexity >= COMPLEX
    ]
    return len(counted), counted


def lines_of_a_package() -> Figure:
    """Lines of the largest package, one inside of it counted by itself; those of single frameworks are left out."""
    counts: dict[str, int] = defaultdict(int)
    for path in sources():
        package = path.relative_to(SOURCE).parent
        if package.parts[:1] not in {(), ("frameworks",)}:
            counts[package.as_posix()] += lines_of(path)
    return max(counts.values()), [f"{name}: {count}" for name, count in sorted(counts.items())]


def dialect_in_identifiers() -> Figure:
    """Names that match VAGUE, functions that match NO_VERB, and ``each`` bound by anything but a loop."""
    counted = [f"{name_of(path)}:{line}" for path in sources() for line in dialect_in(tree_of(path))]
    return len(counted), counted


def dialect_in(tree: ast.Module) -> list[str]:
    """Return the line and the name of each such binding of a module."""
    loops = [node.target for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension)]
    nameless = {id(name) for target in loops for name in ast.walk(target)}
    counted = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            counted += [(node, node.name)] if VAGUE.fullmatch(node.name) or NO_VERB.fullmatch(node.name) else []
        elif isinstance(node, ast.arg | ast.Name) and not isinstance(getattr(node, "ctx", None), ast.Load | ast.Del):
            name = node.arg if isinstance(node, ast.arg) else node.id
            vague = VAGUE.fullmatch(name) or (name == "each" and id(node) not in nameless)
            counted += [(node, name)] if vague else []
    return [f"{node.lineno}: {name}" for node, name in counted]


@cache
def classes() -> tuple[tuple[Path, ast.ClassDef], ...]:
    """Return every class with its file, nested ones and those in functions too."""
    found = []
    for path in sources():
        left: list[ast.AST] = [tree_of(path)]
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


def report_keys_without_example() -> Figure:
    """Keys of the JSON report of which its page shows no example: no stored report has them."""
    counted, form = [], ""
    for line in (ROOT / "docs" / "report-keys.md").read_text().splitlines():
        form = line.removeprefix("### ") if line.startswith("### ") else form
        described = re.match(r"(\[?)`([^`]+)`[^:]*: ", line)
        if described:
            keys = [] if described[1] else [described[2]]
        else:
            keys = re.findall(r"(?:^|, )`([^`]+)`", line) if line.startswith(("`", "[`")) else []
        counted += [f"{form}.{key}" for key in keys if "=" not in key]
    return len(counted), counted


FIGURES: dict[str, dict[str, Callable[[], Figure]]] = {
    "source": {
        measured.__name__: measured
        for measured in (
            files_of_a_framework,
            median_lines,
            longest_file,
            unrelated_groups,
            complex_functions,
            lines_of_a_package,
            dialect_in_identifiers,
            repeated_class_names,
            classes_with_bounds,
        )
    },
    "words": {
        **{name: partial(words_of_all, *patterns) for name, patterns in OF_ALL.items()},
        **{name: partial(words_of_the_longest, pattern) for name, pattern in OF_THE_LONGEST.items()},
        report_keys_without_example.__name__: report_keys_without_example,
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
