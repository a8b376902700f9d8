"""Plant one cause at a time in real frameworks and scripts: is it found, and does its removal gain what was predicted?

Each plant is measured beside its clean twin, of which the rule must be silent. A change of a study that the finding
names is verified by ``steptime advise --verify``; what the removal of the cause itself gains (``removed``) is that of
the twin. Of a script the twin is the change: both are run in turns, and the first run of the plant, of which the rules
speak, is not among those that show what the change gains. Scripts come first, which take less than a minute each:

    .venv/bin/python benchmarks/advice/planted.py FOLDER [--minutes N] [PLANT…]
    .venv/bin/python benchmarks/advice/planted.py --table

A plant that is done is not repeated, so that the program goes on where it was stopped; one that the rule ``noise``
drowned gets as many launches again. Gains that were verified are collected in ``FOLDER/verified.csv``: in the table
that widens predictions, they would change those that follow.
"""

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from planted_causes import PLANTS, SLOW_LINK, Plant
from planted_summary import summary
from verify import BASE, ROOT, run_steptime, verify_folder

from steptime.analysis.compared.change import change_between
from steptime.analysis.compared.sides import attached_sides
from steptime.cli.reported_results import ReportedResults, read_report
from steptime.diagnosis.form import TrialFinding
from steptime.diagnosis.tried_advice import VerifiedAdvice, read_verified, write_verified
from steptime.diagnosis.verification import script_outcome
from steptime.diagnosis.workers import NOISE
from steptime.errors import SteptimeError
from steptime.execution.progress import Silent
from steptime.results.json_form import Interval
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store
from steptime.runner.attached_run import run_in_turns
from steptime.runner.preparation import ready_interpreter
from steptime.statistics.comparison import compare
from steptime.statistics.estimate import estimate

TABLE = Path(__file__).with_suffix(".csv")
LAUNCHES = 3
COLUMNS = (
    "plant",
    "cause",
    "framework",
    "rule",
    "fired",
    "other_rules",
    "predicted",
    "predicted_low",
    "predicted_high",
    "verified",
    "verified_low",
    "verified_high",
    "removed",
    "removed_low",
    "removed_high",
    "clean_silent",
    "clean_rules",
    "load",
    "rules",
    "rule_low",
    "rule_high",
)
"""``rules`` is the commit of the rules that spoke of a cause that nobody had tried with them; empty of older causes."""
GROUP = Path("/sys/fs/cgroup/cpu")
"""Of control groups of the first version; where it is missing, no quota is planted."""
RULES = ("src/steptime/diagnosis", "src/steptime/attached", "src/steptime/attach", "src/steptime/analysis")
"""Where the rules are, and what they are about."""
SCRIPT_S, STUDY_S = 60.0, 150.0
"""Seconds of a plant: none is begun that would not end in time."""
PATH_OF_USER = os.environ["PATH"]


def main() -> None:
    """Measure the plants that are named, or all, and add what was found to the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="of all runs")
    parser.add_argument("plants", nargs="*", metavar="PLANT")
    parser.add_argument("--minutes", type=float, help="after which no plant is under way")
    parser.add_argument("--table", action="store_true", help="print what was found so far, and measure nothing")
    chosen = parser.parse_args()
    if chosen.folder and not chosen.table:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        os.chdir(ROOT)
        deadline = time.monotonic() + 60.0 * chosen.minutes if chosen.minutes else None
        _measure(chosen.folder.absolute(), chosen.plants, deadline)
    print(summary(list(_rows().values())))


def _measure(folder: Path, names: Sequence[str], deadline: float | None) -> None:
    done, rules = _rows(), _commit()
    for name in names or sorted(PLANTS, key=lambda each: PLANTS[each].script is None):
        plant, known = PLANTS[name], done.get(name)
        if known and NOISE.name not in str(known["other_rules"]).split():
            continue
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left < (SCRIPT_S if plant.script else STUDY_S):
            continue
        try:
            if plant.script:
                row = _own_script(folder / name, plant)
            else:
                row = _trained(folder / name, plant, again=known is not None, seconds=left)
        except (SteptimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        about = {"plant": name, "cause": plant.cause, "framework": plant.framework, "rule": plant.rule}
        done[name] = {**about, **row, "rules": known["rules"] if known else rules}
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(done[each] for each in PLANTS if each in done)
        print(done[name], flush=True)


def _commit() -> str:
    """Return the commit that changed the rules last; ``changed`` where the files differ from it."""
    git = [shutil.which("git") or "git", "-C", str(ROOT)]
    if subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *RULES], check=False).returncode:
        return "changed"
    last = [*git, "log", "-1", "--format=%h", "--abbrev=8", "--", *RULES]
    return subprocess.run(last, check=False, capture_output=True, text=True).stdout.strip()


def _rows() -> dict[str, dict[str, object]]:
    if not TABLE.is_file():
        return {}
    with TABLE.open(newline="") as file:
        return {row["plant"]: dict(row) for row in csv.DictReader(file)}


def _trained(folder: Path, plant: Plant, *, again: bool, seconds: float | None) -> dict[str, object]:
    deadline = None if seconds is None else time.monotonic() + seconds
    clean, planted = folder / "clean", folder / "planted"
    _run(clean, plant.clean, again=again, deadline=deadline)
    with _quota(plant.quota):
        _run(planted, {**plant.clean, **plant.planted}, again=again, deadline=deadline)
    if plant.net:
        link = ["--launcher", "emulated", "--bandwidth", str(SLOW_LINK["bandwidth"]), "--launches", "1"]
        run_steptime(
            "net", "horovod-gloo", *link, "--sizes", "16KiB,64KiB,256KiB", "-o", planted, seconds=_left(deadline)
        )
    found, twin = read_report(planted), read_report(clean)
    fired = _of_rule(found, plant.rule)
    rows: list[VerifiedAdvice] = []
    if plant.quota is None and fired and _changes(fired):
        changes = [each.rule for each in _findings(found) if _changes(each)]
        rows = verify_folder(planted, changes.index(plant.rule) + 1, seconds=_left(deadline))
    _collect(folder, rows)
    return {
        **_judged(found, twin, plant.rule),
        **_predicted(fired),
        **_verified(next((each for each in rows if each.rule == plant.rule), None)),
        **_numbers("removed", _gain_of_twin(found, twin)),
        "load": f"{_load(found):.2g}",
    }


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(1.0, deadline - time.monotonic())


def _collect(folder: Path, rows: Sequence[VerifiedAdvice]) -> None:
    """Add verified gains of a plant to those of all."""
    path = folder.parent / "verified.csv"
    if rows:
        write_verified(path, [*read_verified(path), *rows])


def _own_script(folder: Path, plant: Plant) -> dict[str, object]:
    assert plant.script
    os.environ.update(_environment(folder, plant.environment))
    folder.mkdir(parents=True, exist_ok=True)
    commands = [command.split() for command in plant.script]
    run_in_turns(commands, folder, LAUNCHES, Silent())
    first, *others = [Store.open(folder / "before" / f"{number}") for number in range(1, LAUNCHES + 1)]
    clean = [Store.open(folder / "after" / f"{number}") for number in range(1, LAUNCHES + 1)]
    sides = attached_sides([others, clean], ("before", "after"), [str(folder / "before"), str(folder / "after")])
    found, twin = read_report(first.path), read_report(clean[0].path)
    fired = _of_rule(found, plant.rule)
    assert found.attached
    row = script_outcome(fired, commands[1], found.attached, sides).row if fired else None
    _collect(folder, [row] if row else [])
    return {
        **_judged(found, twin, plant.rule),
        **_predicted(fired),
        **_verified(row),
        **_numbers("removed", _inverse(change_between(*sides).trials[0].ratio)),
        "load": f"{found.attached.noise.get('foreign_cpu_cores') or 0.0:.2g}",
    }


def _inverse(ratio: Interval[float | None]) -> Interval[float | None] | None:
    """Return how much more samples per second there are, of a ratio of times."""
    known = ratio.value and ratio.low and ratio.high
    return Interval(1.0 / ratio.value, 1.0 / ratio.high, 1.0 / ratio.low) if known else None


def _predicted(finding: TrialFinding | None) -> dict[str, object]:
    if finding is None:
        return _numbers("predicted", None)
    own = _numbers("rule", finding.rule_gain)
    return {**_numbers("predicted", finding.gain), "rule_low": own["rule_low"], "rule_high": own["rule_high"]}


def _verified(row: VerifiedAdvice | None) -> dict[str, object]:
    interval = row and Interval(row.measured, row.measured_low, row.measured_high)
    return _numbers("verified", interval)


def _environment(folder: Path, framework: str) -> dict[str, str]:
    python = ready_interpreter(framework)
    if python is None:
        message = f"no environment of {framework}: steptime env create {framework} makes it"
        raise SteptimeError(message)
    return {"PATH": f"{python.parent}{os.pathsep}{PATH_OF_USER}", "OUT": str(folder), "OMP_NUM_THREADS": "1"}


def _run(folder: Path, content: dict[str, object], *, again: bool, deadline: float | None) -> None:
    """Run a study; ``again`` where other programs drowned its first launches: as many more are added to them."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".yaml")
    launches = 2 * LAUNCHES if again else LAUNCHES
    file.write_text(
        json.dumps({**BASE, **content, "name": folder.name, "launches": {"min": launches, "max": launches}})
    )
    run_steptime("run", file, "-o", folder, seconds=_left(deadline))


@contextmanager
def _quota(cores: float | None) -> Iterator[None]:
    """Run what is started within, in a control group with so many cores."""
    if cores is None:
        yield
        return
    group = GROUP / "steptime-planted"
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text(str(round(cores * 100_000)))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def _findings(found: ReportedResults) -> Sequence[TrialFinding]:
    return found.diagnosis.findings


def _changes(finding: TrialFinding) -> bool:
    return bool(finding.overrides) and finding.gain.value is not None


def _of_rule(found: ReportedResults, rule: str) -> TrialFinding | None:
    return next((each for each in _findings(found) if each.rule == rule), None)


def _judged(found: ReportedResults, twin: ReportedResults, rule: str) -> dict[str, object]:
    """Return which rules spoke of the plant and of its twin."""
    names, silent = [[each.rule for each in _findings(results)] for results in (found, twin)]
    unsettled = any(each.rule == rule for each in found.diagnosis.unsettled)
    return {
        "fired": "yes" if rule in names else "unsettled" if unsettled else "no",
        "other_rules": " ".join(each for each in names if each != rule),
        "clean_silent": "no" if rule in silent else "yes",
        "clean_rules": " ".join(silent),
    }


def _gain_of_twin(found: ReportedResults, twin: ReportedResults) -> Interval | None:
    """Return samples per second of the twin over those of the plant."""
    launches = []
    for results in (found, twin):
        trial = next(iter(results.store.trials()))
        timed = [each for each in results.store.iter_records(TIMING, trial.id) if each.status == "ok"]
        times = estimate(timed, trial.strategy) if timed else None
        if times is None:
            return None
        launches.append((trial.global_batch, times.launches))
    (batch, slow), (other, fast) = launches
    ratio = compare(slow, fast)
    return Interval(*(other / batch * each for each in (ratio.ratio, ratio.low, ratio.high)))


def _numbers(name: str, interval: Interval | Interval[float | None] | None) -> dict[str, object]:
    values = (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
    keys = (name, f"{name}_low", f"{name}_high")
    return {key: "" if value is None else f"{value:.4g}" for key, value in zip(keys, values, strict=True)}


def _load(found: ReportedResults) -> float:
    known = [value for each in found.summary.trials if (value := each.noise.get("foreign_cpu_cores")) is not None]
    return sum(known) / len(known) if known else 0.0


if __name__ == "__main__":
    main()
