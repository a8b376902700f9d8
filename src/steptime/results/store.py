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

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from steptime.errors import StoreError
from steptime.file_name import file_name_mistake
from steptime.results.attached_files import AttachedFiles, AttachedHeader, read_attached
from steptime.results.consistency import FileCheck, KnownLaunches, SetAside, counted, sentences
from steptime.results.equivalence_records import EquivalenceResult, read_equivalence
from steptime.results.folder import ResultsFolder, pretty_json
from steptime.results.gpu_windows import RECORDS
from steptime.results.jsonlines import append_line
from steptime.results.net_records import NetLaunch, read_net
from steptime.results.peaks import PEAKS, StoredPeaks
from steptime.results.record_kinds import TIMING, KeptRecord, RecordKind, kind_of
from steptime.results.records import Launch, Replay, read_replay
from steptime.results.results_files import ResultsFiles
from steptime.results.stored_record import SCHEMA, StoredRecord, TrialLaunch
from steptime.study.trial import Trial

_REPLAYS = "replays.jsonl"


class Store(ResultsFolder):
    """Reads and writes one results folder, with its records.

    Every method that reads raises StoreError when it meets a newer schema; every method that writes raises it when
    another process is writing to the folder, or when the disk is full.
    """

    def __init__(self, path: Path) -> None:
        """Use ``create`` or ``open`` instead."""
        super().__init__(path)
        self._files = ResultsFiles(path)
        self._trials: dict[str, Trial] | None = None
        self._known: KnownLaunches = {}

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
                "in their files; rerun the study to measure again"
            )
            raise StoreError(message)

    def add_trial(self, trial: Trial) -> bool:
        """Keep a configuration, and say whether it was not there; one that is there already stays as it is."""
        folder = self._folder_of(trial.id)
        with self._lock:
            new = not (folder / "trial.json").exists()
            if new:
                form = trial.model_dump(mode="json", exclude={"id"})
                self._folder.write(folder / "trial.json", pretty_json(form))
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
