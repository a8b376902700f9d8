"""A results folder, and the only code that writes one.

::

    study.yaml              the study as the user wrote it
    study.json              schema, the steptime that wrote it, and the study with all defaults filled in
    study-N.yaml, .json     the same of run N, where a later run of the folder has another study
    machine.json            the machine that ran it
    NAME.json               what else the runner wants kept, by ``put``: verdicts, skipped, tiers, implementations,
                            and datasets: what of each folder of images was used, and what was not
    progress.json           how far the latest run is, or how it ended
    equivalence.jsonl       one line per result of the equivalence check
    net.jsonl               one line per launch of the network benchmark
    attached.json, attached/ a user's own command, and what each of its processes wrote: see results/attached_files.py
    trials/ID/trial.json    one configuration
    trials/ID/records.jsonl one line per launch
    trials/ID/ablation.jsonl one line per ablation launch
    trials/ID/loader.jsonl  one line per loader launch
    trials/ID/training.jsonl one line per training
    run.lock                held by the process that writes; run.lock.N where the file system refuses locks

Reading needs no lock and may happen while another process writes. Writing takes the lock; ``with store.lock():``
around a whole run keeps it. Whenever the machine stops, what was appended before is there, and nothing else.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import steptime
from steptime.errors import StoreError
from steptime.file_name import file_name_mistake
from steptime.plain_file import PlainFolder, cannot_write, refuse_links
from steptime.results.attached_files import RECORDS, AttachedFiles, AttachedHeader, read_attached
from steptime.results.consistency import FileCheck, KnownLaunches, SetAside, counted, sentences
from steptime.results.equivalence_records import EquivalenceResult, read_equivalence
from steptime.results.jsonlines import append_line, json_text
from steptime.results.lock import FolderLock
from steptime.results.net_records import NetLaunch, read_net
from steptime.results.peaks import PEAKS, StoredPeaks
from steptime.results.record_kinds import TIMING, KeptRecord, RecordKind, kind_of
from steptime.results.records import Launch, Replay, read_replay
from steptime.results.results_files import ResultsFiles
from steptime.results.stored_record import SCHEMA, StoredRecord, TrialLaunch
from steptime.study.trial import Trial
from steptime.synonyms import path_hint

_RESERVED = ("study", "machine")
_REPLAYS = "replays.jsonl"
_NAMED = 5
"""Results folders in another, at most so many."""


class Store:
    """Reads and writes one results folder.

    Every method that reads raises StoreError when it meets a newer schema; every method that writes raises it when
    another process is writing to the folder, or when the disk is full.
    """

    def __init__(self, path: Path) -> None:
        """Use ``create`` or ``open`` instead."""
        self.path = path
        self._files = ResultsFiles(path)
        self._folder = PlainFolder(path)
        self._lock = FolderLock(path / "run.lock")
        self._trials: dict[str, Trial] | None = None
        self._known: KnownLaunches = {}
        self._machine_id = cache(self._read_machine_id)

    def folder_around(self, path: Path) -> PlainFolder:
        """Return the folder below which no link is followed to ``path``: this one, or that of a path outside."""
        return self._folder if path.is_relative_to(self.path) else PlainFolder(path.parent)

    @property
    def problems(self) -> list[str]:
        """What was set aside while reading, in sentences."""
        return sentences(self.set_aside)

    @property
    def set_aside(self) -> list[SetAside]:
        """The lines of records that were read and that no number rests on."""
        return self._files.set_aside

    def unverified_of(self, trial_id: str) -> int:
        """Return how many lines of a trial that were read have no checksum, as older versions wrote them."""
        return self._files.unverified_below(self._folder_of(trial_id))

    def set_aside_of(self, trial_id: str) -> list[SetAside]:
        """Return those of a trial."""
        return self._files.set_aside_below(self._folder_of(trial_id))

    def require_launches(self) -> None:
        """Raise StoreError where every launch that was read was set aside."""
        if self._files.nothing_is_left:
            message = (
                f"no launch of {self.path} is left: its records were set aside ({counted(self.set_aside)}) and stay "
                "in their files; run the study again to measure anew"
            )
            raise StoreError(message)

    @staticmethod
    def exists(path: Path) -> bool:
        """Say whether ``path`` is a results folder."""
        return (path / "study.json").is_file()

    @classmethod
    def create(cls, path: Path, *, study_text: str, study_json: Mapping[str, Any]) -> "Store":
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
    def open(cls, path: Path) -> "Store":
        """Open a results folder; raises StoreError when it is none or when a newer steptime wrote it."""
        if not cls.exists(path):
            raise StoreError(_no_results(path))
        refuse_links(path)
        store = cls(path)
        store._files.header()
        return store

    @property
    def study_text(self) -> str:
        """The study file, word by word."""
        return self._files.text(self.path / "study.yaml")

    @property
    def study_json(self) -> dict[str, Any]:
        """The study with all defaults filled in."""
        study: dict[str, Any] = self._files.header()["study"]
        return study

    def set_study(self, study_text: str, study_json: Mapping[str, Any]) -> list[str]:
        """Take another version of the study, for a run that continues with more trials or other limits.

        The version that was there stays, under the next free number; return the names of its files, if it differs.
        """
        with self._lock:
            new = {"study.yaml": study_text.encode(), "study.json": _pretty(_header_of(study_json))}
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
            self._folder.write(self.path / f"{name}.json", _pretty(value))

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the object kept under ``name``, or None."""
        return self._files.json_object(self.path / f"{name}.json")

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
            self._folder.write(self.path / "machine.json", _pretty(machine))
            self._machine_id.cache_clear()

    def machine(self) -> dict[str, Any] | None:
        """Return the fingerprint of the machine that runs the study; None when none was given."""
        return self._files.json_object(self.path / "machine.json")

    def _read_machine_id(self) -> str | None:
        found = (self.machine() or {}).get("id")
        return found if isinstance(found, str) else None

    def add_trial(self, trial: Trial) -> bool:
        """Keep a configuration, and say whether it was not there; one that is there already stays as it is."""
        folder = self._folder_of(trial.id)
        with self._lock:
            new = not (folder / "trial.json").exists()
            if new:
                form = trial.model_dump(mode="json", exclude={"id"})
                self._folder.write(folder / "trial.json", _pretty(form))
            if self._trials is not None:
                self._trials[trial.id] = trial
        return new

    def trials(self) -> list[Trial]:
        """Return all configurations, in the order of their ids."""
        if self._trials is None:
            found = {}
            for path in sorted(self.path.glob("trials/*/trial.json")):
                self._folder_of(path.parent.name)
                found[path.parent.name] = self._files.trial(path)
            self._trials = found
        return [self._trials[name] for name in sorted(self._trials)]

    def append(self, record: TrialLaunch) -> None:
        """Add the record of a launch to those of its trial and kind, and wait until it is on the disk.

        Raises StoreError when it cannot be written (the file is then as it was before), ValueError when its trial
        was not added.
        """
        folder = self._folder_of(record.trial)
        if not (folder / "trial.json").exists():
            message = f"launch of an unknown trial {record.trial}; add the trial first"
            raise ValueError(message)
        with self._lock:
            self._append(folder / kind_of(record).file, record)

    def records(self, kind: RecordKind[KeptRecord], trial_id: str) -> list[KeptRecord]:
        """Return a trial's launches of a kind in the order in which they ran; unfit and damaged lines are set aside."""
        return list(self.iter_records(kind, trial_id))

    def iter_records(self, kind: RecordKind[KeptRecord], trial_id: str) -> Iterator[KeptRecord]:
        """Yield a trial's launches of a kind one by one, for callers that must not hold all of them."""
        trial = cache(lambda: self._trial(trial_id))
        check = FileCheck[KeptRecord](lambda _: trial(), only=trial_id, machine=self._machine_id(), known=self._known)
        return self._files.launches(self._folder_of(trial_id) / kind.file, kind.read, check)

    def launches(self, trial_id: str) -> list[Launch]:
        """Return the timed launches of a trial, as ``records`` does."""
        return self.records(TIMING, trial_id)

    def _trial(self, trial_id: str) -> Trial:
        path = self._folder_of(trial_id) / "trial.json"
        known = (self._trials or {}).get(trial_id)
        if known is None and not path.exists():
            message = f"{path} is missing: it describes the launches of its trial; restore it from a copy"
            raise StoreError(message)
        return known or self._files.trial(path)

    def append_equivalence(self, result: EquivalenceResult) -> None:
        """Add a result of the equivalence check and wait until it is on the disk."""
        with self._lock:
            self._append(self.path / "equivalence.jsonl", result)

    def equivalence(self) -> list[EquivalenceResult]:
        """Return the results of the equivalence check, oldest first."""
        return list(self._files.records(self.path / "equivalence.jsonl", read_equivalence))

    def append_replay(self, replay: Replay) -> None:
        """Add a replay of a trial's timed launches and wait until it is on the disk."""
        with self._lock:
            self._append(self._folder_of(replay.trial) / _REPLAYS, replay)

    def replays(self, trial_id: str) -> list[Replay]:
        """Return the replays of a trial, oldest first."""
        found = self._files.records(self._folder_of(trial_id) / _REPLAYS, read_replay)
        return [each for each in found if each.trial == trial_id]

    def append_net(self, launch: NetLaunch) -> None:
        """Add a launch of the network benchmark and wait until it is on the disk."""
        with self._lock:
            self._append(self.path / "net.jsonl", launch)

    def net(self) -> list[NetLaunch]:
        """Return the launches of the network benchmark, oldest first."""
        check = FileCheck[NetLaunch](lambda launch: launch.setting, machine=self._machine_id())
        return list(self._files.launches(self.path / "net.jsonl", read_net, check))

    def attached(self) -> tuple[AttachedHeader, AttachedFiles] | None:
        """Return what is on record of the run of a user's own command; None if the folder is not of one."""
        header = self.get("attached")
        if header is None:
            return None
        files = read_attached(self._folder, self.path / RECORDS)
        peaks = StoredPeaks.model_validate(self.get(PEAKS) or {})
        return AttachedHeader.model_validate(header), replace(files, peaks=peaks)

    def _append(self, path: Path, record: StoredRecord) -> None:
        append_line(self._folder, path, record.to_json() | {"schema": SCHEMA})

    def _folder_of(self, trial_id: str) -> Path:
        if mistake := file_name_mistake(trial_id):
            message = f"{self.path / 'trials'} cannot have a trial of this name: {mistake}"
            raise StoreError(message)
        return self.path / "trials" / trial_id


def _no_results(path: Path) -> str:
    """Return why a path is not a results folder, with the one that may be meant."""
    if not path.exists():
        return "; ".join(filter(None, (f"{path} is not a results folder: no such folder", path_hint(path))))
    inside = sorted(each.parent.name for each in path.glob("*/study.json"))[:_NAMED] if path.is_dir() else []
    held = f"; it holds results folders, of which one can be named: {', '.join(inside)}" if inside else ""
    return f"{path} is not a results folder: it has no study.json{held}"


def _may_precede(name: str) -> bool:
    """Say whether a file may lie in a folder that is not a results folder yet: the study, the lock and its leases."""
    return name in ("run.lock", "study.yaml") or name.startswith("run.lock.")


def _header_of(study_json: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "written_by": steptime.__version__, "study": dict(study_json)}


def _pretty(value: Mapping[str, Any]) -> bytes:
    return (json_text(value, indent=1, sort_keys=True) + "\n").encode()
