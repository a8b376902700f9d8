"""A results folder without its records: the study, the machine and the objects that are kept in it."""

import contextlib
import json
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self

import steptime
from steptime.errors import StoreError
from steptime.plain_file import PlainFolder, cannot_write, refuse_links
from steptime.results.jsonlines import json_text
from steptime.results.lock import FolderLock
from steptime.results.object_files import ObjectFiles
from steptime.results.stored_record import SCHEMA
from steptime.synonyms import path_hint
from steptime.user_output import mistaken_file

RESULTS = Path("steptime-results")
"""Where results lie that no folder was named for, below the working folder."""
_RESERVED = ("study", "machine")
_NAMED = 5
"""Results folders in another, at most so many."""


class ResultsFolder:
    """Reads and writes what a results folder holds beside records.

    Every method that reads raises StoreError when it meets a newer schema; every method that writes raises it when
    another process is writing to the folder, or when the disk is full.
    """

    def __init__(self, path: Path) -> None:
        """Use ``create`` or ``open`` instead."""
        self.path = path
        self._objects = ObjectFiles(path)
        self._folder = PlainFolder(path)
        self._lock = FolderLock(path / "run.lock")
        self._machine_id = cache(self._read_machine_id)

    def folder_around(self, path: Path) -> PlainFolder:
        """Return the folder below which no link is followed to ``path``: this one, or that of a path outside."""
        return self._folder if path.is_relative_to(self.path) else PlainFolder(path.parent)

    @staticmethod
    def exists(path: Path) -> bool:
        """Say whether ``path`` is a results folder."""
        return (path / "study.json").is_file()

    @classmethod
    def create(cls, path: Path, *, study_text: str, study_json: Mapping[str, Any]) -> Self:
        """Make a results folder.

        Args:
            path: an empty folder, which keeps its mode, or one that does not exist yet, which only its owner may open.
            study_text: the study file, word by word.
            study_json: the study with all defaults filled in.

        Raises StoreError when the folder holds anything already or cannot be written.
        """
        if cls.exists(path):
            message = f"{path} already holds results; open it to continue them, or choose another folder"
            raise StoreError(message)
        try:
            PlainFolder(path).make(path, mode=0o700)
            strangers = sorted(item.name for item in path.iterdir() if not _may_precede(item.name))
        except OSError as error:
            raise cannot_write(path, error) from error
        if strangers:
            message = f"{path} is not empty (it holds {strangers[0]}) and is not a results folder; choose another"
            raise StoreError(message)
        store = cls(path)
        store.set_study(study_text, study_json)
        return store

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a results folder; raises StoreError when it is none or when a newer steptime wrote it."""
        if not cls.exists(path):
            raise StoreError(_no_results(path))
        refuse_links(path)
        store = cls(path)
        store._objects.header()
        return store

    @property
    def study_text(self) -> str:
        """The study file, word by word."""
        return self._objects.text(self.path / "study.yaml")

    @property
    def study_json(self) -> dict[str, Any]:
        """The study with all defaults filled in."""
        study: dict[str, Any] = self._objects.header()["study"]
        return study

    def set_study(self, study_text: str, study_json: Mapping[str, Any]) -> list[str]:
        """Take another version of the study, for a run that continues with more trials or other limits.

        The version that was there stays, under the next free number; return the names of its files, if it differs.
        """
        with self._lock:
            new = {"study.yaml": study_text.encode(), "study.json": pretty_json(_header_of(study_json))}
            kept = self._kept_study(study_text, study_json)
            for name, data in new.items():  # study.json last: it is what makes the folder a results folder
                self._folder.write(self.path / name, data)
        return kept

    def _kept_study(self, study_text: str, study_json: Mapping[str, Any]) -> list[str]:
        """Keep copies of the study that is there, unless it is the given one; return their names."""
        if not self.exists(self.path):
            return []
        try:
            same = self.study_text == study_text and self.study_json == json.loads(json.dumps(study_json))
        except (OSError, ValueError, KeyError, StoreError):
            same = False
        if same:
            return []
        number = next(number for number in count(1) if not (self.path / f"study-{number}.json").exists())
        kept = []
        for name in ("study.yaml", "study.json"):
            copy = name.replace("study", f"study-{number}")
            with contextlib.suppress(OSError):
                self._folder.write(self.path / copy, self._folder.read(self.path / name))
                kept.append(copy)
        return kept

    def lock(self) -> FolderLock:
        """Return the folder's lock, a context manager; raises StoreError naming the process that holds it."""
        return self._lock

    def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Keep a JSON object under ``name``.json, in place of the one that was there."""
        if name in _RESERVED or not name.isidentifier():
            message = f"a results folder cannot hold an object named {name!r}"
            raise ValueError(message)
        with self._lock:
            self._folder.write(self.path / f"{name}.json", pretty_json(value))

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the object kept under ``name``, or None."""
        return self._objects.json_object(self.path / f"{name}.json")

    def set_machine(self, machine: Mapping[str, Any]) -> None:
        """Say which machine runs the study; a folder belongs to one machine.

        Raises StoreError when the launches of this folder ran on another processor, number of cores or GPUs, or on
        another machine of the same kind.
        """
        with self._lock:
            before = self.machine()
            if before is not None:
                for key in ("cpu", "cores", "gpus", "id"):
                    known = key != "id" or None not in (before.get(key), machine.get(key))
                    if known and before.get(key) != machine.get(key):
                        message = (
                            f"{self.path} holds results of another machine ({key}: {before.get(key)!r}, here "
                            f"{machine.get(key)!r}); times of two machines do not compare, choose another folder"
                        )
                        raise StoreError(message)
            self._folder.write(self.path / "machine.json", pretty_json(machine))
            self._machine_id.cache_clear()

    def machine(self) -> dict[str, Any] | None:
        """Return the fingerprint of the machine that runs the study; None when none was given."""
        return self._objects.json_object(self.path / "machine.json")

    def _read_machine_id(self) -> str | None:
        found = (self.machine() or {}).get("id")
        return found if isinstance(found, str) else None


def _no_results(path: Path) -> str:
    """Return why a path is not a results folder, with the one that may be meant, or with what makes one."""
    if not path.exists():
        kept = RESULTS / path
        meant = f"did you mean '{kept}'?" if kept.is_dir() else path_hint(path, _holds_results)
        return f"{path} is not a results folder: no such folder; {meant or _known_results()}"
    if message := mistaken_file(path, "a results folder", "name its folder, {}"):
        return message
    inside = _results_in(path) or _results_in(path / RESULTS)
    held = f"it holds results folders, of which one can be named: {', '.join(map(str, inside))}"
    if len(inside) > 1 and all((each / "attached.json").is_file() for each in inside):
        held += f"; of its runs together: steptime compare {path} OTHER"
    return f"{path} is not a results folder: it has no study.json; {held if inside else _known_results()}"


def _results_in(folder: Path) -> list[Path]:
    """Return results folders in another, at most a few, as they can be named here."""
    return sorted(each.parent for each in folder.glob("*/study.json"))[:_NAMED] if folder.is_dir() else []


def _known_results() -> str:
    """Return which results folders are here, or else what makes one."""
    known = [str(each) for each in _results_in(RESULTS)]
    return f"here is {' or '.join(known)}" if known else "make one: steptime run STUDY, or steptime attach -- COMMAND"


def _holds_results(path: Path) -> bool:
    return (path / "study.json").is_file() or bool(_results_in(path))


def _may_precede(name: str) -> bool:
    """Say whether a file may lie in a folder that is not a results folder yet: the study, the lock and its leases."""
    return name in ("run.lock", "study.yaml") or name.startswith("run.lock.")


def _header_of(study_json: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "written_by": steptime.__version__, "study": dict(study_json)}


def pretty_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as a file of its own holds it."""
    return (json_text(value, indent=1, sort_keys=True) + "\n").encode()
