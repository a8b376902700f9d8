"""The network benchmark from its plan to a results folder."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from steptime.frameworks.manifest import Manifest
from steptime.launchers.orphans import end_orphans
from steptime.measurements.machine import fingerprint
from steptime.measurements.store import Store
from steptime.runner.bench import Bench
from steptime.runner.net.measuring import NetMeasuring
from steptime.runner.net.plan import NetPlan
from steptime.runner.observer import Observer
from steptime.runner.preparing import environment_spec, prepare_environments, usable_cores

QUESTION = "How long does a message take over each back end?"
RUN_FOLDERS = "net-launches"


@dataclass(frozen=True)
class NetFinished:
    """How it ended, in numbers for the exit code and the last line."""

    failed: int
    """Launches without a result, and settings without an environment."""
    wrong: int
    """Launches in which a value was wrong."""
    not_run: int
    """For want of budget."""


@dataclass
class NetRun:
    """One run of the network benchmark into a results folder, a study's or its own; what is there is not repeated."""

    plan: NetPlan
    manifests: Mapping[str, Manifest]
    folder: Path
    launches: int
    time_limit_s: float
    budget_s: float | None
    observer: Observer

    def go(self) -> NetFinished:
        """Prepare, measure and store.

        Raises StoreError when the folder cannot be used, KeyboardInterrupt when the user stops it; what was measured
        before is kept.
        """
        end_orphans()
        store = self._store()
        with store.lock():
            store.set_machine(fingerprint())
            return self._run(store)

    def _store(self) -> Store:
        if Store.exists(self.folder):
            return Store.open(self.folder)
        text = "# Made by 'steptime net': no study, only messages.\n"
        return Store.create(self.folder, study_text=text, study_json={"name": "net", "question": QUESTION})

    def _run(self, store: Store) -> NetFinished:
        frameworks = dict.fromkeys(setting.framework for setting in self.plan.settings)
        prepared = prepare_environments((environment_spec(self.manifests[name]) for name in frameworks), self.observer)
        settings = [each for each in self.plan.settings if each.framework not in prepared.failures]
        bench = Bench(self.manifests, prepared.environments, usable_cores(), self.time_limit_s)
        before = store.net()
        done = Counter(launch.setting.id for launch in before if launch.status != "failed")
        measuring = NetMeasuring(
            bench=bench,
            launches=self.launches,
            folder=self.folder / RUN_FOLDERS,
            keep=store.append_net,
            observer=self.observer,
        )
        # Environments are made once per machine; the budget is for what every run does.
        deadline = None if self.budget_s is None else time.monotonic() + self.budget_s
        not_run = measuring.run(settings, done, deadline)
        without = len(self.plan.settings) - len(settings)
        ended = Counter(launch.status for launch in store.net()[len(before) :])
        return NetFinished(failed=ended["failed"] + without, wrong=ended["wrong"], not_run=not_run)
