"""The launches of the network benchmark, block after block in random order, each kept as soon as it is over.

The network benchmark from its plan to a results folder.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.frameworks.manifest import Manifest
from steptime.launchers.orphans import end_orphans
from steptime.measurements.machine import fingerprint
from steptime.measurements.net.records import NetLaunch, NetSetting, Visit, WorkerVisits
from steptime.measurements.store import Store
from steptime.runner.collection import Collected
from steptime.runner.executor import Bench, launch_once
from steptime.runner.jobs import SCHEMA
from steptime.runner.net_plan import NetPlan
from steptime.runner.observer import Observer
from steptime.runner.preparation import environment_spec, prepare_environments, usable_cores

_CRASHES = 2
"""How often a launch that a signal ended is repeated: old software dies like that now and then."""


@dataclass(frozen=True)
class NetMeasuring:
    """What a launch needs beside its setting."""

    bench: Bench
    launches: int
    """Of each setting."""
    folder: Path
    """Where run folders are made; those of failed launches, and of each setting's first, stay."""
    keep: Callable[[NetLaunch], None]
    observer: Observer
    seed: int = 0

    def run(self, settings: Sequence[NetSetting], done: Mapping[str, int], deadline: float | None) -> int:
        """Launch every setting so often as it still needs, while there is time; return how many launches were left out.

        Args:
            settings: to measure.
            done: for each setting's id, how many launches it has that ended well.
            deadline: on ``time.monotonic``, after which no launch is begun; None for no budget.
        """
        left = sum(max(0, self.launches - done.get(setting.id, 0)) for setting in settings)
        if not left:
            return 0
        self.observer.stage("Timing messages", left)
        given_up = set()
        for block in range(self.launches):
            members = [each for each in settings if done.get(each.id, 0) <= block and each.id not in given_up]
            random.Random(f"{self.seed}/net/{block}").shuffle(members)  # noqa: S311 - reproducible, not secret
            for setting in members:
                if deadline is not None and time.monotonic() >= deadline:
                    self.observer.note("the budget is spent; what was measured is kept")
                    return left
                self.observer.working_on(describe(setting, block))
                launch = self._launch(setting, block)
                self.keep(launch)
                left -= 1
                if launch.status == "failed":
                    # It would fail again; a wrong value may be rare, and how rare is worth knowing.
                    given_up.add(setting.id)
                    left -= self.launches - block - 1
                self.observer.finished(f"{describe(setting, block)}: {launch.reason}", ok=launch.status == "ok")
        return 0

    def _launch(self, setting: NetSetting, number: int) -> NetLaunch:
        folder = self.folder / setting.id / f"launch-{number}"
        for _ in range(1 + _CRASHES):
            launched = launch_once(
                self.bench, setting, net_job(setting, self.seed + number), folder, keep_folder=number == 0
            )
            if not launched.ran.crashed:
                break
        shared, ran = launched.shared, launched.ran
        workers = [] if ran.reason else worker_visits(ran.collected, setting.workers)
        found = {name: shared[name] for name in shared if name != "trial"}
        if any(worker.wrong for worker in workers):
            found["status"] = "wrong"
            found["reason"] = _first_wrong(ran.collected, setting.workers)
        return NetLaunch(
            setting=setting,
            launch=number,
            commands=ran.outcome.commands,
            alphas_s=[] if ran.reason else ran.collected.worker(0)["net"]["alphas_s"],
            workers=workers,
            **found,
        )


def net_job(setting: NetSetting, seed: int) -> dict[str, Any]:
    """Return the ``job.json`` of one launch; ``seed`` orders its visits."""
    return {
        "schema": SCHEMA,
        "framework": setting.framework,
        "strategy": setting.strategy,
        "options": dict(setting.options),
        "device": setting.device,
        "precision": "fp32",
        "threads": setting.threads,
        "seed": seed,
        "mode": "net",
        "exchange": {
            "back_end": setting.back_end,
            "operations": list(setting.operations),
            "sizes": list(setting.sizes),
        },
        "schedule": {"rounds": setting.rounds, "runs": setting.runs, "seconds": setting.seconds},
    }


def worker_visits(collected: Collected, workers: int) -> list[WorkerVisits]:
    """Return what every worker saw; raises KeyError when a worker lacks a record."""
    return [_visits(rank, collected.worker(rank)) for rank in range(workers)]


def describe(setting: NetSetting, launch: int) -> str:
    """Return a launch in a few words."""
    return f"{setting.back_end}, {setting.workers} workers, launch {launch + 1}"


def _visits(rank: int, records: dict[str, dict[str, Any]]) -> WorkerVisits:
    seen = records["net"]
    return WorkerVisits(
        rank=rank,
        host=records["process"]["host"],
        visits=[Visit(**visit) for visit in seen["visits"]],
        checks=seen["checks"],
        wrong=seen["wrong"],
        facts=records["session"]["facts"],
    )


def _first_wrong(collected: Collected, workers: int) -> str:
    told: list[str] = [sentence for rank in range(workers) for sentence in collected.worker(rank)["net"]["told"]]
    return told[0]


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
