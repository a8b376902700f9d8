"""Scripts with planted causes, started as users do: the answer says what was planted, by the clock of the script.

A loaded machine adds to what was planted and takes nothing away; times are compared within one run.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import FORKED_RANKS
from launching import interpreter_for
from program import PROGRAM

from steptime.launchers.base import free_ports

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "attach" / "scripts"
STEPS = 40


@dataclass(frozen=True)
class PlantedRun:
    """What a script said and what steptime found of it."""

    code: int
    found: dict[str, Any]
    planted: dict[int, dict[str, list[float]]]
    """By rank and cause, the seconds of each."""
    output: str

    def part(self, name: str) -> dict[str, Any]:
        return next(part for part in self.found["parts"] if part["name"] == name)

    def use(self, name: str) -> dict[str, Any]:
        return next(part for part in self.found["job"] if part["name"] == name)

    def finding(self, kind: str) -> str:
        return next(each["sentence"] for each in self.found["findings"] if each["kind"] == kind)

    def mean_s(self, rank: int, cause: str, per_step: int) -> float:
        """The planted seconds of a step."""
        values = self.planted[rank][cause]
        return per_step * sum(values) / len(values)


def require_quiet(run: PlantedRun) -> None:
    """Skip a claim about who waits for whom where others take ranks off the processors, and make them late."""
    foreign = run.found["noise"].get("foreign_cpu_cores") or 0.0
    if foreign > 0.5:
        pytest.skip(f"others kept {foreign:.2g} cores busy")


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Run a kind of script on two ranks, once for all tests of the module: of DDP, by torchrun."""
    python = interpreter_for("pytorch")

    @cache
    def run(kind: str) -> PlantedRun:
        folder = tmp_path_factory.mktemp(kind)
        port = str(free_ports(1)[0])
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
        launcher = [str(python), *(torchrun if kind == "ddp" else [FORKED_RANKS])]
        command = [*PROGRAM, "attach", "-o", str(folder / "results"), "--lines", "--json", "--", *launcher]
        done = subprocess.run(
            [*command, str(SCRIPTS / "loops.py"), kind],
            cwd=folder,
            env={**os.environ, "STEPS": str(STEPS), "OUT": str(folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        planted = {
            rank: json.loads(path.read_text())["planted"]
            for rank in range(2)
            if (path := folder / f"said-{rank}.json").exists()
        }
        return PlantedRun(done.returncode, json.loads(done.stderr.splitlines()[-1]), planted, done.stdout)

    return run


def test_the_line_of_a_slow_loader_is_named(run_of):
    assert "planting.py" in run_of("ddp").part("input_wait")["where"]


@pytest.mark.alone
def test_a_slow_loader_is_input(run_of):
    run = run_of("ddp")
    for rank in range(2):
        waited_s = run.part("input_wait")["ranks_s"][rank]
        assert waited_s == pytest.approx(run.mean_s(rank, "load", 4), rel=0.3, abs=0.004)


@pytest.mark.alone
def test_a_slow_rank_is_waited_for_by_the_other(run_of):
    run = run_of("ddp")
    slow_s = run.mean_s(1, "slow", 1)
    assert run.part("forward")["ranks_s"][1] - run.part("forward")["ranks_s"][0] == pytest.approx(slow_s, rel=0.4)
    require_quiet(run)
    waiting, innocent = run.part("sync_wait")["ranks_s"]
    assert waiting > 0.5 * slow_s
    assert innocent < 0.5 * waiting
    assert (run.found["waited_for"]["rank"], run.found["waited_for"]["part"]) == (1, "forward")


def test_the_parts_of_a_real_step_sum_to_it(run_of):
    found = run_of("ddp").found
    assert sum(part["time_s"]["value"] for part in found["parts"]) == pytest.approx(found["step_s"]["value"], rel=1e-6)


def test_the_whole_time_is_accounted_for(run_of):
    found = run_of("ddp").found
    assert sum(part["time_s"] for part in found["job"]) == pytest.approx(found["wall_s"], rel=1e-3)


@pytest.mark.alone
def test_an_evaluation_is_accounted_for(run_of):
    run = run_of("ddp")
    evaluated = sum(run.planted[0]["evaluated batch"]) + sum(run.planted[0]["evaluation load"])
    assert run.use("evaluation")["ranks_s"][0] == pytest.approx(evaluated, rel=0.25)


def test_the_script_itself_ends_as_alone(run_of):
    run = run_of("ddp")
    assert run.code == 0
    assert run.output.count("LOSS") == 2


@pytest.mark.alone
def test_only_the_synchronised_pass_of_an_accumulation_waits(run_of):
    run = run_of("accumulation")
    slow_s = run.mean_s(1, "slow", 4)
    assert run.found["micro_steps"] == 4
    assert run.found["waited_for"]["rank"] in {1, None}
    assert run.part("sync_wait")["ranks_s"][0] > 0.5 * slow_s
    assert run.part("input_wait")["ranks_s"][0] == pytest.approx(run.mean_s(0, "load", 16), rel=0.3)


@pytest.mark.alone
def test_a_batch_that_no_loader_makes_is_a_gap_with_its_line(run_of):
    run = run_of("nanogpt")
    gap = run.part("forward>backward")
    assert gap["gap"]
    planted_s = run.mean_s(0, "load", 4)
    # Steps beside evaluations are left out of the gap and not of the planted mean: on a busy machine they differ more.
    assert 0.8 * planted_s < gap["time_s"]["value"] < 2.0 * planted_s
    assert "planted_times.py" in gap["where"] or "get_batch" in gap["where"]
    assert "between forward and backward" in run.finding("gaps")


@pytest.mark.alone
def test_an_evaluation_on_one_rank_holds_the_other_up(run_of):
    run = run_of("nanogpt")
    evaluated = sum(run.planted[0]["evaluation"])
    evaluation, held_up = run.use("evaluation"), run.use("held_up")
    assert evaluation["ranks_s"][0] == pytest.approx(evaluated, rel=0.25)
    assert evaluation["ranks_s"][1] == 0.0
    assert held_up["ranks_s"][1] > 0.4 * evaluated
    assert "rank 0 evaluates" in run.finding("evaluation_on_few_ranks")


@pytest.mark.alone
def test_the_slow_rank_of_fsdp_is_waited_for_in_its_collectives(run_of):
    run = run_of("fsdp2")
    assert run.found["collectives"]
    require_quiet(run)
    waiting = run.part("sync_wait")["ranks_s"]
    assert waiting[0] > waiting[1]


@pytest.mark.costly
def test_a_pipeline_is_not_split(run_of):
    run = run_of("pipeline")
    assert "pipeline" in run.part("sync_wait")["reason"]
    assert run.part("sync_wait")["time_s"]["value"] is None
    assert run.part("exchange")["time_s"]["value"] > 0.0
