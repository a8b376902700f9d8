"""How launches of LeNet-5 differ: forked ones from fresh ones, and fresh ones by what they could differ for.

``forked``: of each framework, launches in fresh processes and in forks of a process that has imported it, in turns. The
processes that are forked are started anew after a few rounds, so that a spread between them is told from one within.
``causes``: fresh launches with and without cores of their own, huge pages for malloc, the same addresses in each
process, and a warm-up of 100 steps: half of all combinations, in turns, so that each cause has as many launches with it
as without. Both write a row for each launch, and print what it comes to; ``--print`` reads rows that there are.

Of forked-launches.csv: forked ones took 0.96 (0.84 to 1.08) times as long as fresh ones in PyTorch, 1.04 (0.95 to 1.13)
in TensorFlow, 0.99 to 1.04 in the other four. All intervals hold 1, and three hold 5 % more or less, too: a race that
tells 10 % apart would not know whom forks favour. The variance of forks is 4.3 times that of fresh launches in Chainer,
0.29 in Paddle and 0.4 to 2.1 elsewhere; PyTorch's forks of one process differ by 16 %, its processes by 10 %. A fork
saves 1.9 s of a launch in PyTorch, 1.7 s in TensorFlow and nothing in MXNet: where each block has a process of its own,
an eighth of the time in which the quickstart launches.
"""

import argparse
import csv
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

from scipy import stats

from steptime.catalog.manifest import Manifest, load_manifests
from steptime.catalog.workloads.table import build_workload
from steptime.datasets.dataset import Dataset
from steptime.execution.executor import Executor, LaunchResult
from steptime.execution.host import usable_cores
from steptime.execution.jobs import TimingSchedule, timing_job
from steptime.execution.progress import Silent
from steptime.launchers.base import AbstractLauncher
from steptime.launchers.request import Request
from steptime.runner.preparation import (
    environment_spec,
    loader_of,
    prepare_datasets,
    prepare_environments,
    prepare_stored_form,
    ready_interpreter,
)
from steptime.study.trial import Trial

FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "chainer", "jax", "paddle")
CAUSES = ("own_cores", "huge_pages", "same_addresses", "long_warm_up")
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_WARM_UP, _LONG_WARM_UP = 5, 100
_BATCH = 64
_FIXED = '#!/bin/sh\nexec setarch "$(uname -m)" -R {interpreter} "$@"\n'
Row = dict[str, Any]


class Forking(Executor):
    """Launches with cores of their own in forks of a process that has imported the framework."""

    def _measured(
        self, launcher: AbstractLauncher, request: Request, manifest: Manifest, job: Mapping[str, Any], last_record: str
    ) -> LaunchResult:
        forked = self.preloading.request(request, manifest)
        return super()._measured(launcher, forked, manifest, job, last_record)


@dataclass(frozen=True)
class Bench:
    """Launches LeNet-5 on digits, one worker."""

    fresh: Executor
    digits: Dataset
    scratch: Path
    seconds: float
    """Timed in each launch."""

    def launch(
        self, executor: Executor, framework: str, warm_up: int = _WARM_UP, variables: Mapping[str, str] | None = None
    ) -> Row:
        """Launch once; return the mean and the median of its steps."""
        trial = trial_of(framework, variables or {})
        workload = build_workload("lenet5", trial.input_shape, trial.classes)
        loader = loader_of(trial, {"digits": prepare_stored_form(self.digits, trial.loader, Silent())})
        schedule = TimingSchedule(warm_up, self.seconds, 10, 2000)
        ran = executor.launch(trial, timing_job(trial, workload, loader, schedule), self.scratch, keep_folder=False)
        if ran.reason:
            sys.exit(f"{framework}: {ran.reason}\n{ran.stderr}")
        steps = ran.collected.worker(0)["steps"]
        ends = [steps["origin_s"], *steps["ends_s"]]
        gaps = [later - earlier for earlier, later in pairwise(ends)]
        mean, median = statistics.fmean(gaps), statistics.median(gaps)
        return {"mean_ms": round(1e3 * mean, 4), "median_ms": round(1e3 * median, 4), "wall_s": round(ran.wall_s, 2)}


def trial_of(framework: str, variables: Mapping[str, str]) -> Trial:
    """Return the trial of a framework, as the quickstart has it."""
    manifest = load_manifests()[framework]
    options = manifest.tier_options("documented", "single", "cpu")
    return Trial(
        framework=framework,
        strategy="single",
        workload="lenet5",
        input_shape=(1, 28, 28),
        classes=10,
        dataset="digits",
        loader="native",
        device="cpu",
        precision="fp32",
        workers=1,
        batch_per_worker=_BATCH,
        options=options,
        launcher=manifest.launcher_for("single", options),
        environment_variables=dict(variables),
    )


def bench(frameworks: Sequence[str], scratch: Path, seconds: float) -> Bench:
    """Return what launches ``frameworks``, whose environments are there."""
    manifests = load_manifests()
    ready = prepare_environments([environment_spec(manifests[name]) for name in frameworks], Silent())
    fresh = Executor(manifests, ready.environments, usable_cores(), 120.0)
    return Bench(fresh, prepare_datasets(["digits"], Silent())["digits"], scratch / "run", seconds)


def forked(own: Bench, frameworks: Sequence[str], until: float, rounds: int, of_a_server: int) -> Iterator[Row]:
    """Yield the launches of both kinds, in turns."""
    forking = Forking(**{name: getattr(own.fresh, name) for name in Executor.__dataclass_fields__})
    with closing(forking.preloading):
        for number in range(rounds):
            if number % of_a_server == 0:
                forking.preloading.close()
            pairs = [(name, kind) for name in frameworks for kind in ("fresh", "forked")]
            random.shuffle(pairs)
            for name, kind in pairs:
                if time.monotonic() >= until:
                    return
                server = number // of_a_server if kind == "forked" else ""
                measured = own.launch(forking if kind == "forked" else own.fresh, name)
                yield {"framework": name, "kind": kind, "server": server, "round": number, **measured}


def causes(own: Bench, frameworks: Sequence[str], until: float, rounds: int) -> Iterator[Row]:
    """Yield fresh launches of half of all combinations of causes, in turns."""
    fixed = {name: _at_fixed_addresses(own.fresh, name, own.scratch.parent) for name in frameworks}
    half = [levels for levels in product((0, 1), repeat=len(CAUSES)) if sum(levels) % 2 == 0]
    for number in range(rounds):
        cells = [(name, levels) for name in frameworks for levels in half]
        random.shuffle(cells)
        for name, levels in cells:
            if time.monotonic() >= until:
                return
            pinned, huge, same, long = levels
            executor = replace(fixed[name] if same else own.fresh, cores=own.fresh.cores if pinned else ())
            variables = _HUGE_PAGES if huge else None
            measured = own.launch(executor, name, _LONG_WARM_UP if long else _WARM_UP, variables)
            yield {"framework": name, **dict(zip(CAUSES, levels, strict=True)), "round": number, **measured}


def _at_fixed_addresses(executor: Executor, framework: str, folder: Path) -> Executor:
    """Return an executor whose interpreter starts with the same memory layout each time."""
    ready = executor.environments[framework]
    program = folder / f"{framework}-python"
    program.write_text(_FIXED.format(interpreter=ready.interpreter))
    program.chmod(0o700)
    return replace(executor, environments={**executor.environments, framework: replace(ready, interpreter=program)})


def spread(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the standard deviation within groups of logarithms, and its degrees of freedom."""
    squares = sum((each - statistics.fmean(group)) ** 2 for group in groups for each in group)
    freedom = sum(len(group) - 1 for group in groups if group)
    return (sqrt(squares / freedom) if freedom else float("nan")), freedom


def ratio(one: Sequence[float], other: Sequence[float]) -> str:
    """Return the ratio of two geometric means with its interval of 95 %, by Welch."""
    apart = statistics.fmean(one) - statistics.fmean(other)
    if min(len(one), len(other)) < 2:
        return f"{exp(apart):.3f}"
    parts = [statistics.variance(each) / len(each) for each in (one, other)]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (one, other), strict=True))
    half = float(stats.t.ppf(0.975, freedom)) * sqrt(sum(parts))
    return f"{exp(apart):.3f} ({exp(apart - half):.3f} to {exp(apart + half):.3f})"


def print_forked(rows: Sequence[Row]) -> None:
    """Print how forked launches differ from fresh ones, and how those of either kind differ."""
    print("| framework | launches | forked / fresh | spread of fresh | of forks of one process | between processes |")
    print("|---|---|---|---|---|---|")
    for name in dict.fromkeys(row["framework"] for row in rows):
        own = [row for row in rows if row["framework"] == name]
        fresh = [log(float(row["mean_ms"])) for row in own if row["kind"] == "fresh"]
        servers: dict[str, list[float]] = {}
        for row in own:
            if row["kind"] == "forked":
                servers.setdefault(str(row["server"]), []).append(log(float(row["mean_ms"])))
        copies = [each for group in servers.values() for each in group]
        if not (fresh and copies):
            continue
        within, _ = spread([*servers.values()])
        means = [statistics.fmean(group) for group in servers.values()]
        size = len(copies) / len(servers)
        left = statistics.variance(means) - within**2 / size if len(means) > 1 else 0.0
        between = sqrt(max(0.0, left)) if len(means) > 1 else float("nan")
        count = f"{len(fresh)} + {len(copies)} of {len(servers)}"
        shown = [f"{100 * each:.1f} %" for each in (spread([fresh])[0], within, between)]
        print(f"| {name} | {count} | {ratio(copies, fresh)} | {' | '.join(shown)} |")


def print_causes(rows: Sequence[Row]) -> None:
    """Print by framework and cause how launches differ with and without it, and what it makes of the step time."""
    print("| framework | cause | launches | spread without | spread with | step time with / without |")
    print("|---|---|---|---|---|---|")
    for name, cause in product(dict.fromkeys(row["framework"] for row in rows), CAUSES):
        levels = []
        for level in "01":
            cells: dict[tuple[str, ...], list[float]] = {}
            for row in rows:
                if row["framework"] == name and str(row[cause]) == level:
                    cell = tuple(str(row[each]) for each in CAUSES)
                    cells.setdefault(cell, []).append(log(float(row["mean_ms"])))
            levels.append([*cells.values()])
        without, with_it = levels
        flat = [[each for group in level for each in group] for level in levels]
        if not all(flat):
            continue
        shown = " | ".join(f"{100 * spread(level)[0]:.1f} %" for level in (without, with_it))
        print(f"| {name} | {cause} | {len(flat[0])} + {len(flat[1])} | {shown} | {ratio(flat[1], flat[0])} |")


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["forked", "causes"])
    parser.add_argument("rows", type=Path, help="the CSV file")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0.6, help="timed in each launch")
    parser.add_argument("--forks", type=int, default=4, help="of one process")
    parser.add_argument("--frameworks", nargs="+")
    parser.add_argument("--print", action="store_true", dest="printed")
    chosen = parser.parse_args()
    if not chosen.printed:
        usual = FRAMEWORKS if chosen.what == "forked" else FRAMEWORKS[:4]
        frameworks = [name for name in chosen.frameworks or usual if ready_interpreter(name)]
        with tempfile.TemporaryDirectory(prefix="launches-") as folder:
            own = bench(frameworks, Path(folder), chosen.seconds)
            until = time.monotonic() + 60.0 * chosen.minutes
            found = (
                forked(own, frameworks, until, chosen.rounds, chosen.forks)
                if chosen.what == "forked"
                else causes(own, frameworks, until, chosen.rounds)
            )
            with chosen.rows.open("w", newline="") as file:
                writer = None
                for row in found:
                    writer = writer or csv.DictWriter(file, [*row])
                    if file.tell() == 0:
                        writer.writeheader()
                    writer.writerow(row)
                    file.flush()
    with chosen.rows.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    (print_forked if chosen.what == "forked" else print_causes)(rows)


if __name__ == "__main__":
    main()
