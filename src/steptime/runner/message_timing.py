"""Message timing: the network benchmark, from its plan to records in a results folder."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.catalog.found_site import Site
from steptime.catalog.manifest import Manifest
from steptime.execution.collected import Collected
from steptime.execution.executor import Executor, LaunchResult
from steptime.execution.host import usable_cores
from steptime.execution.jobs import SCHEMA
from steptime.execution.launch_request import environment_key
from steptime.execution.living_hosts import living_hosts, probe_site
from steptime.execution.progress import Observer
from steptime.expansion.site import accelerators_of
from steptime.foreign_writers import require_folder_for_launches
from steptime.launchers.orphans import end_orphans
from steptime.results.machine import fingerprint
from steptime.results.net_records import NetLaunch, NetSetting, Visit, WorkerVisits
from steptime.results.store import Store
from steptime.runner.block_runner import START_S, AbstractRuns, BlockRunner, Schedule, StoppingRule
from steptime.runner.net_plan import NetPlan
from steptime.runner.preparation import environment_spec, prepare_environments

QUESTION = "How long does a message take over each back end?"
RUN_FOLDERS = "net-launches"


@dataclass(frozen=True)
class MessageRuns(AbstractRuns[NetSetting, NetLaunch]):
    """The launches of the network benchmark's settings."""

    crash_repeats = 2  # old software dies of a signal now and then

    folder_of_runs: Path
    """Where run folders are made."""
    seed: int = 0
    title: str = "Timing messages"
    guess_s: float = START_S

    def job(self, configuration: NetSetting, number: int) -> dict[str, Any]:
        return net_job(configuration, self.seed + number)

    def folder(self, configuration: NetSetting, number: int) -> Path:
        return self.folder_of_runs / configuration.id / f"launch-{number}"

    def record(self, configuration: NetSetting, number: int, result: LaunchResult, fields: dict[str, Any]) -> NetLaunch:
        workers = [] if result.reason else worker_visits(result.collected, configuration.workers)
        if any(worker.wrong for worker in workers):
            wrong = {"status": "wrong", "reason": _first_wrong(result.collected, configuration.workers)}
            fields = {**fields, **wrong}
        return NetLaunch(
            **fields,
            setting=configuration,
            launch=number,
            commands=result.outcome.commands,
            alphas_s=[] if result.reason else result.collected.worker(0)["net"]["alphas_s"],
            workers=workers,
        )

    def describe(self, configuration: NetSetting, number: int) -> str:
        return f"{configuration.back_end}, {configuration.workers} workers, launch {number + 1}"


def message_schedule(
    settings: Sequence[NetSetting], launches: int, before: Iterable[NetLaunch] = ()
) -> Schedule[NetSetting, NetLaunch]:
    """Return the schedule that gives each of ``settings`` so many ``launches``.

    A launch that fails would fail again, so that its setting is given up. One with a wrong value counts: a wrong
    value may be rare, and how rare is worth knowing.
    """
    records: dict[str, list[NetLaunch]] = {}
    for launch in before:
        if launch.status != "failed":
            records.setdefault(launch.setting.id, []).append(launch)
    return Schedule(settings, StoppingRule(launches, launches, failures=1), seed="0/net", records=records)


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
    """Return the timed messages of every worker; raises KeyError when a worker lacks a record."""
    return [_visits(rank, collected.worker(rank)) for rank in range(workers)]


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
    mistakes: list[str] = [each for rank in range(workers) for each in collected.worker(rank)["net"]["mistakes"]]
    return mistakes[0]


@dataclass(frozen=True)
class NetCounts:
    """How a run of the network benchmark ended, in numbers for the exit code and the last line."""

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
    site: Site | None = None
    """The hosts of launches that use some."""

    def run(self) -> NetCounts:
        """Prepare, measure and store.

        Raises StoreError when the folder cannot be used, LaunchError when a host cannot, Interrupted when a signal
        stops it; what was measured before is kept.
        """
        end_orphans()
        store = self._store()
        with store.lock():
            store.set_machine(fingerprint(alone=self.site is None))
            hosts = site = None
            if self.site is not None:
                site = probe_site(self.site, store, self.observer, "salloc -N 2")
                hosts = living_hosts(site, len(site.hosts), store, self.observer)
            accelerators = accelerators_of(site)
            needed = dict.fromkeys(environment_key(setting) for setting in self.plan.settings)
            specs = {
                each: environment_spec(self.manifests[each[0]], None, each[1], accelerators, each[2]) for each in needed
            }
            prepared = prepare_environments(specs.values(), self.observer)
            names = {each: spec.name for each, spec in specs.items()}
            there = prepared.environments
            settings = [each for each in self.plan.settings if names[environment_key(each)] in there]
            before = store.net()
            # Environments are made once per machine; the budget is for what every run does.
            deadline = None if self.budget_s is None else time.monotonic() + self.budget_s
            cores, limit_s = usable_cores(), self.time_limit_s
            not_run = BlockRunner(
                executor=Executor(
                    self.manifests, there, cores, limit_s, environment_names=names, hosts=hosts, results=self.folder
                ),
                runs=MessageRuns(self.folder / RUN_FOLDERS),
                keep=store.append_net,
                observer=self.observer,
                deadline=lambda: deadline,
            ).run(message_schedule(settings, self.launches, before))
            without = len(self.plan.settings) - len(settings)
            ended = Counter(launch.status for launch in store.net()[len(before) :])
            return NetCounts(failed=ended["failed"] + without, wrong=ended["wrong"], not_run=not_run)

    def _store(self) -> Store:
        require_folder_for_launches(self.folder)
        if Store.exists(self.folder):
            return Store.open(self.folder)
        text = "# Made by 'steptime net': no study, only messages.\n"
        return Store.create(self.folder, study_text=text, study_json={"name": "net", "question": QUESTION})
