"""The plan of a run says what the run starts."""

import subprocess
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import steptime
from steptime.errors import LaunchError
from steptime.execution.progress import Silent
from steptime.launchers import namespaces, processes
from steptime.launchers.request import Process
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store
from steptime.runner.plan import StudyPlan, command_line, plan_study, shell_lines
from steptime.runner.run_kinds import deadlines
from steptime.runner.study_run import StudyRun

STUDY = """\
version: 1
name: planned
workloads: [{name: lenet5, batch_per_worker: 4}]
frameworks: [reference]
strategies: [single, allreduce]
workers: [1, 2]
exclude: [{strategies: allreduce, workers: 1}]
loaders: [synthetic]
equivalence: {enabled: false}
launches: {min: 1, max: 1}
seconds_per_launch: 0.1
steps: {warmup: 1, min: 1, max: 2}
"""
OF_EACH_LAUNCH = {
    "STEPTIME_RUN",
    "STEPTIME_PARENT",
    "STEPTIME_RUNNER",
    "STEPTIME_ROOT_ADDRESS",
    "STEPTIME_WORKER_ADDRESSES",
    "STEPTIME_SERVER_ADDRESSES",
}
"""Variables that hold ports, a process number or a name that no other launch has."""
PACKAGE = Path(steptime.__file__).parent


@dataclass
class Started:
    """The processes that were really started."""

    commands: list[tuple[tuple[str, ...], Path, dict[str, str]]] = field(default_factory=list)
    callers: list[str] = field(default_factory=list)
    """The functions of steptime that led to the first of them, outermost first."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Start processes as ever, and note how."""
    found = Started()
    real = subprocess.Popen

    def start(argv: Any, **how: Any) -> Any:
        found.commands.append((tuple(argv), how["cwd"], how["env"]))
        if not found.callers:
            frames = traceback.StackSummary.extract(traceback.walk_stack(None), capture_locals=False)
            inside = [frame for frame in reversed(frames) if Path(frame.filename).is_relative_to(PACKAGE)]
            found.callers += [f"{Path(frame.filename).stem}.{frame.name}" for frame in inside]
        return real(argv, **how)

    monkeypatch.setattr(processes.subprocess, "Popen", start)
    return found


@pytest.fixture
def plan(tmp_path: Path) -> StudyPlan:
    (tmp_path / "planned.yaml").write_text(STUDY)
    return plan_study(str(tmp_path / "planned.yaml"), [], tmp_path / "results", None)


def test_the_dry_run_prints_the_commands_that_the_run_starts(plan, started):
    printed = {trial.id: plan.commands(trial) for trial in plan.expansion.trials}
    planned = {
        trial.id: plan.processes(trial, range(20_000, 20_001 + trial.workers)) for trial in plan.expansion.trials
    }
    assert printed.keys() == planned.keys()

    StudyRun(plan, Silent()).run()

    for trial in plan.expansion.trials:
        folder = plan.folder / "trials" / trial.id / "launch-0"
        real = [(argv, variables) for argv, where, variables in started.commands if where == folder]
        assert len(real) == len(planned[trial.id]) == len(printed[trial.id]) == trial.workers
        for (argv, variables), process in zip(real, planned[trial.id], strict=True):
            assert argv == (*process.entry, *process.argv)
            said = {name: value for name, value in process.environment.items() if name not in OF_EACH_LAUNCH}
            assert said == {name: variables[name] for name in said}
            steptimes = {name for name in variables if name.startswith("STEPTIME_")}
            assert steptimes <= set(process.environment)


def test_a_printed_line_holds_all_variables_and_the_arguments(plan):
    trial = plan.expansion.trials[0]
    (process,) = plan.processes(trial, range(15_000, 15_002))
    (line,) = plan.commands(trial)
    assert line == command_line(process)
    assert line.endswith(" ".join(process.argv))
    assert all(f"{name}=" in line for name in process.environment)


def test_from_a_study_to_a_process_are_five_steps(plan, started):
    StudyRun(plan, Silent()).run()

    steps = [name for name in started.callers if not name.split(".")[1].startswith("_")]
    assert steps == ["study_run.run", "block_runner.run", "executor.launch", "base.run", "processes.watch"]


def test_a_budget_keeps_its_share_for_ablation_launches(plan):
    breakdown = plan_study(str(plan.folder.parent / "planned.yaml"), ["breakdown.launches=99"], plan.folder, "100s")

    assert deadlines(breakdown.study, breakdown.expansion.trials, 100.0, 1000.0)[:2] == [1060.0, 1100.0]


@pytest.mark.parametrize(("kind", "words"), [("network namespace", "network namespace"), (None, None)])
def test_the_plan_says_what_keeps_others_out_of_its_launches(plan, monkeypatch, kind, words):
    monkeypatch.setattr(namespaces, "isolation_kind", lambda: kind)
    assert plan.isolation() == {"local": words}


def test_a_study_that_requires_isolation_starts_nothing_where_there_is_none(plan, started, monkeypatch):
    monkeypatch.setattr(namespaces, "isolation_kind", lambda: None)
    strict = plan_study(str(plan.folder.parent / "planned.yaml"), ["isolation=required"], plan.folder, None)
    with pytest.raises(LaunchError, match=r"'isolation: required'.*launches by 'local': no network namespace"):
        StudyRun(strict, Silent()).run()
    assert not started.commands
    assert not plan.folder.exists()


@pytest.mark.parametrize("kind", [namespaces.isolation_kind(), None])
def test_a_launch_is_recorded_with_what_kept_others_out(plan, monkeypatch, kind):
    monkeypatch.setattr(namespaces, "isolation_kind", lambda: kind)
    StudyRun(plan, Silent()).run()
    launches = [
        each for trial in plan.expansion.trials for each in Store.open(plan.folder).iter_records(TIMING, trial.id)
    ]
    assert [launch.isolation for launch in launches] == [kind] * len(plan.expansion.trials)


def process(script, **variables):
    return Process("worker-0", ("sh", "-c", script), variables)


@pytest.mark.parametrize(
    "processes",
    [
        [process("echo $A $RANK", A="1", RANK="0"), process("echo $A $RANK", A="1", RANK="1")],
        [process("echo $A $B", A="x y", B="0;1", RANK="0"), process("echo $A $B", A="x y", B="0;2", RANK="0")],
        [process("echo $A $B", A="1"), process("echo $A", A="1")],
        [process("echo $A", A="1")],
        [process("echo $A", A="1"), process("echo none")],
    ],
    ids=["a rank", "quoted", "nothing of its own", "one process", "nothing shared"],
)
def test_commands_that_share_variables_print_what_they_print_alone(processes):
    lines = map(command_line, processes)
    alone = [subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout for line in lines]
    shown = "\n".join(shell_lines(processes))
    together = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True)
    assert together.stdout == "".join(alone)


def test_a_variable_that_all_commands_share_is_exported_once():
    processes = [Process("", ("go", "x y"), {"A": "1", "R": "0"}), Process("", ("go",), {"A": "1", "R": "1"})]
    assert shell_lines(processes) == ["export A=1", "R=0 go 'x y'", "R=1 go"]
