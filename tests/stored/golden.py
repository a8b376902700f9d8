"""What the program makes of the stored studies today, and the golden files that it is compared with.

``tests/data/golden/digests.txt`` has one line per part of an output (a trial of a report, a section of a page, a table
of an export) with the first digits of its SHA-256; outputs of the study READABLE are kept whole beside it. Decimal
numbers count to DIGITS digits, since the linear algebra of another processor rounds otherwise.

Renew them from the root of the repository, after reading the difference that this prints, with

    .venv/bin/python tests/stored/golden.py --renew

The difference is taken between the outputs of the working tree and those of the commit that last changed the golden
files (or of the one given with ``--against``), whose sources are taken from git.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import BinaryIO

import polars as pl
from stored_studies import FITTED, PREDICTIONS, STUDIES, output_of, unpacked

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
DIGESTS = GOLDEN / "digests.txt"
READABLE = "strong-scaling"
"""The study whose outputs are kept whole, but for its page."""
WIDTHS = (80, 120)
DIGITS = 7
_ZERO = 1e-12
_CLIP = re.compile(r"\bclip\d+\b")
_DECIMAL = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+", re.IGNORECASE)
_SHOWN_LINES = 200


def render(study: str, root: Path) -> dict[str, str]:
    """Return every output made of a stored study, by its name; ``root`` is an empty folder for the study."""
    unpacked(study, root)
    found: dict[str, str] = {}
    with chdir(root):
        for width in WIDTHS:
            found[f"report-{width}.txt"] = output_of("report", "study", columns=width)
            found[f"report-all-{width}.txt"] = output_of("report", "--all", "study", columns=width)
        found["report.json"] = output_of("report", "study", "--json", "--html", "page.html")
        found["page.html"] = renumbered(Path("page.html").read_text())
        for form in ("csv", "parquet", *(["chrome"] if study in FITTED else [])):
            output_of("export", "study", "--to", form, "-o", f"export-{form}")
            for path in sorted(Path(f"export-{form}").iterdir()):
                found[f"export/{path.name}"] = _text_of(path)
        if study in FITTED:
            found["profile.json"] = Path("study.profile.json").read_text()
            for name, arguments in PREDICTIONS.items():
                found[name] = output_of("predict", "study.profile.json", *arguments, "--json")
            for width in WIDTHS:
                arguments = PREDICTIONS["predict.json"]
                found[f"predict-{width}.txt"] = output_of("predict", "study.profile.json", *arguments, columns=width)
    return {name: rounded(text) for name, text in found.items()}


def renumbered(page: str) -> str:
    """Return a page whose clip paths are numbered from 1: the library that draws counts them over a whole process."""
    numbers = {name: f"clip-{number}" for number, name in enumerate(dict.fromkeys(_CLIP.findall(page)), 1)}
    return _CLIP.sub(lambda match: numbers[match[0]], page)


def _text_of(path: Path) -> str:
    """Return a file of an export as text; a Parquet table as its types and rows."""
    if path.suffix != ".parquet":
        return path.read_text()
    table = pl.read_parquet(path)
    return f"{dict(table.schema)}\n{table.write_ndjson()}"


def rounded(text: str) -> str:
    """Return a text whose decimal numbers have DIGITS digits."""
    return _DECIMAL.sub(_rounded, text)


def _rounded(match: re.Match[str]) -> str:
    number = float(match[0])
    text = "0" if abs(number) < _ZERO else f"{number:.{DIGITS}g}"
    return text if "." in text or "e" in text else f"{text}.0"


def parts_of(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each part of an output that gets a digest of its own."""
    if name.endswith(".json") and not name.startswith("export/"):
        yield f"{name} layout", re.sub(r"[^\s{}\[\],:\"]+", "", text)
        for key, value in json.loads(text).items():
            items = value if isinstance(value, list) else [value]
            for number, item in enumerate(items):
                part = f"{key}[{number}]" if isinstance(value, list) else key
                yield f"{name} {part}", json.dumps(item)
    elif name.endswith(".html"):
        for number, section in enumerate(re.split(r"(?=<section id=)", text)):
            title = re.match(r'<section id="([\w-]+)"', section)
            yield f"{name} {title[1] if title else f'before {number + 1}'}", section
    else:
        yield name, text


def digests_of(study: str, outputs: dict[str, str]) -> dict[str, str]:
    """Return the digest of every part of a study's outputs, by the study and the part."""
    parts = [part for name, text in outputs.items() for part in parts_of(name, text)]
    return {f"{study} {name}": hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in parts}


def kept_digests() -> dict[str, str]:
    """Return the digests of the golden files."""
    lines = DIGESTS.read_text().splitlines() if DIGESTS.exists() else []
    return {name: digest for digest, _, name in (line.partition(" ") for line in lines)}


def is_readable(name: str) -> bool:
    """Whether an output of the study READABLE is kept whole."""
    return not name.endswith((".html", ".parquet"))


def changed(kept: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return a line for each part that is new, missing or different."""
    return [
        f"{name}: {'new' if name not in kept else 'missing' if name not in found else 'different'}"
        for name in sorted(kept | found)
        if kept.get(name) != found.get(name)
    ]


def render_all(target: Path) -> None:
    """Write the outputs of all stored studies into ``target``."""
    for study in STUDIES:
        with tempfile.TemporaryDirectory() as root:
            outputs = render(study, Path(root))
        for name, text in outputs.items():
            path = target / study / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def _render_in_a_process(sources: Path, target: Path) -> None:
    """Render with the package in the folder ``sources``."""
    command = [sys.executable, __file__, "--render", str(target)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(sources)})


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _outputs_in(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.*"))}


def show_difference(before: dict[str, str], after: dict[str, str]) -> None:
    """Print a unified difference of each output, of at most _SHOWN_LINES lines."""
    for name in sorted(before | after):
        texts = [_lines(name, side.get(name, "")) for side in (before, after)]
        lines = list(difflib.unified_diff(*texts, f"before/{name}", f"after/{name}", "", "", 1, ""))
        for line in lines[:_SHOWN_LINES]:
            sys.stdout.write(f"{line[:240]}\n")
        if len(lines) > _SHOWN_LINES:
            sys.stdout.write(f"... {len(lines) - _SHOWN_LINES} more lines of {name}\n")


def _lines(name: str, text: str) -> list[str]:
    """Split an output into lines; a page also at its tags, whose drawings are on one line."""
    return text.replace(">", ">\n").splitlines() if name.endswith(".html") else text.splitlines()


def renew(outputs: dict[str, str]) -> None:
    """Write the golden files anew."""
    by_study: dict[str, dict[str, str]] = {}
    for path, text in outputs.items():
        study, _, name = path.partition("/")
        by_study.setdefault(study, {})[name] = text
    digests: dict[str, str] = {}
    for study, found in by_study.items():
        digests |= digests_of(study, found)
    shutil.rmtree(GOLDEN / READABLE, ignore_errors=True)
    for name, text in by_study[READABLE].items():
        if is_readable(name):
            path = GOLDEN / READABLE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    DIGESTS.write_text("".join(f"{digests[name]} {name}\n" for name in sorted(digests)))


def main() -> int:
    """Show how the outputs differ from the golden ones, and renew these if asked to; return the exit code."""
    parser = argparse.ArgumentParser(description="Compare the outputs of the stored studies with the golden files.")
    parser.add_argument("--renew", action="store_true", help="also write the golden files")
    parser.add_argument("--against", metavar="COMMIT", help="show the difference from this commit's outputs")
    parser.add_argument("--render", metavar="DIR", type=Path, help="only write all outputs into this folder")
    arguments = parser.parse_args()
    if arguments.render:
        render_all(arguments.render)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _render_in_a_process(ROOT / "src", folder / "after")
        after = _outputs_in(folder / "after")
        studies = dict.fromkeys(path.partition("/")[0] for path in after)
        found: dict[str, str] = {}
        for study in studies:
            outputs = {path.partition("/")[2]: text for path, text in after.items() if path.startswith(f"{study}/")}
            found |= digests_of(study, outputs)
        different = changed(kept_digests(), found)
        commit = arguments.against or _git("log", "-1", "--format=%H", "--", str(GOLDEN))
        if (different or arguments.against) and commit:
            with tarfile.open(fileobj=_archive(commit, folder)) as archive:
                archive.extractall(folder / "sources", filter="data")
            _render_in_a_process(folder / "sources" / "src", folder / "before")
            show_difference(_outputs_in(folder / "before"), after)
    sys.stdout.write("".join(f"{line}\n" for line in different) or "The outputs are the golden ones.\n")
    if arguments.renew:
        renew(after)
        return 0
    return 1 if different else 0


def _archive(commit: str, folder: Path) -> BinaryIO:
    """Return the sources of a commit as an open tar file."""
    target = folder / "sources.tar"
    _git("archive", "--format=tar", "-o", str(target), commit, "src")
    return target.open("rb")


if __name__ == "__main__":
    sys.exit(main())
