"""The corpus of bad inputs: tables of cases in YAML, and the files that the cases name.

A table is a list of sections. A section has ``commands``, in which ``{}`` stands for the case (as one argument), and
``cases``: a list, or a mapping of each case to the words that the message must hold. ``file`` names the file that the
text of a case becomes, ``change`` the JSON file of which a case ``path=value`` replaces one value, and ``damage`` says
that a case names the file of the results folder which becomes what its value says.
"""

import json
import os
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).parent
TABLES = sorted(HERE.glob("*.yaml"))

STUDY = "version: 1\nworkloads: lenet5\nframeworks: reference\nworkers: 1\n"
POINTS = "workers,step_time_s\n1,0.1\n2,0.11\n4,0.12\n"


def unpack(archive: Path, folder: Path) -> None:
    """Extract one of the stored archives into a folder."""
    with tarfile.open(archive) as opened:
        # Debian 12's Python 3.11.2 has no filters yet.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(folder)  # noqa: S202 - it is one of this repository


@dataclass(frozen=True)
class Case:
    """One bad input."""

    table: str
    section: dict[str, Any]
    command: str
    text: str
    expected: Any

    @property
    def name(self) -> str:
        """What identifies the case in the output of pytest."""
        shown = self.text if self.text.isprintable() else repr(self.text)
        return f"{self.table}: {self.command} <- {shown[:60]}"

    @property
    def arguments(self) -> list[str]:
        """The arguments of the program."""
        return [part.replace("{}", expanded(self.text)) for part in shlex.split(self.command)]

    @property
    def words(self) -> list[str]:
        """What the message must hold; by default the name that was given."""
        if self.section.get("damage"):
            return []
        if self.expected is None:
            said = self.section.get("says", expanded(self.text)[:60])
            return said if isinstance(said, list) else [said]
        return [str(each) for each in (self.expected if isinstance(self.expected, list) else [self.expected])]

    @property
    def codes(self) -> set[int]:
        """The exit codes that are right."""
        given = self.section.get("codes", 2)
        return set(given) if isinstance(given, list) else {given}


def expanded(text: str) -> str:
    """Return the text with LONG in place of a name that no file system takes, and DEEP of 400 brackets."""
    return text.replace("LONG", "n" * 300).replace("DEEP", "[" * 400)


def cases() -> Iterator[Case]:
    """Yield every case of every table."""
    for table in TABLES:
        for section in YAML(typ="safe", pure=True).load(table):
            listed = section["cases"]
            pairs = listed.items() if isinstance(listed, dict) else ((each, None) for each in listed)
            for text, expected in pairs:
                for command in section["commands"]:
                    yield Case(table.stem, section, command, str(text), expected)


def prepare(case: Case, folder: Path, results: Path, profile: Path) -> None:
    """Make the files that a case may name in ``folder``, from a whole results folder and a whole profile."""
    (folder / "study.yaml").write_text(STUDY)
    (folder / "points.csv").write_text(POINTS)
    (folder / "profile.json").write_bytes(profile.read_bytes())
    if any("results" in part for part in case.arguments):
        copy_tree(results, folder / "results")
    (folder / "file").write_text("no such thing\n")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 4)
    (folder / "huge").touch()
    os.truncate(folder / "huge", 1 << 40)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "loop").symlink_to("loop")
    (folder / "gone").symlink_to("nowhere")
    if "file" in case.section:
        (folder / case.section["file"]).write_bytes(expanded(case.text).encode("utf-8", "surrogateescape"))
    if "change" in case.section:
        change(folder / case.section["change"], case.text)
    if case.section.get("damage"):
        damage(folder / "results", case.text, case.expected)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files of a folder."""
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())


def change(path: Path, text: str) -> None:
    """Replace one value of a JSON file: ``groups.0.spread=null``; ``-`` in place of a value takes it away."""
    place, _, value = text.partition("=")
    data = json.loads(path.read_text())
    *above, last = [int(key) if key.isdigit() else key for key in place.split(".")]
    holder = data
    for key in above:
        holder = holder[key]
    if value == "-":
        del holder[last]
    else:
        holder[last] = json.loads(value)
    path.write_text(json.dumps(data))


def damage(results: Path, pattern: str, what: Any) -> None:
    """Make of the files of a results folder that ``pattern`` names what the case says."""
    found = sorted(results.glob(pattern)) or [results / pattern]
    for path in found:
        _remove(path)
        if what == "folder":
            path.mkdir()
        elif what == "pipe":
            os.mkfifo(path)
        elif what == "device":
            path.symlink_to("/dev/zero")
        elif what == "link":
            path.symlink_to("/etc/hostname")
        elif what == "huge":
            path.touch()
            os.truncate(path, 1 << 40)
        elif what == "binary":
            path.write_bytes(bytes(range(256)) * 40)
        elif what != "gone":
            path.write_text(expanded(str(what)))


def _remove(path: Path) -> None:
    if path.is_dir():
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
