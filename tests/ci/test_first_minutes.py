"""The program for the first minutes on a borrowed GPU, tried on processors with the same code."""

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launching import interpreter_for

FOLDER = Path(__file__).parents[2] / "benchmarks/gpu"
sys.path.append(str(FOLDER))
import first_minutes  # noqa: E402 - found through the line above

KEPT = sorted(FOLDER.glob("first-minutes-cpu-*.json"))


def run(folder: Path, python: Path, seconds: float) -> dict[str, Any]:
    """Run what is in ``folder`` from a folder in which nothing of steptime is."""
    command = [python, "-I", folder / "first_minutes.py", "run", "--seconds", str(seconds)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of which PyTorch's runs in fp32 are left, of one worker."""
    folder = tmp_path_factory.mktemp("borrowed") / "gpu"
    first_minutes.prepare(folder, "cpu", "lenet5", batch=8, steps=10)
    plan = json.loads((folder / "plan.json").read_text())
    own = [each for each in plan["runs"] if each["framework"] == "pytorch" and each["workers"] == 1]
    plan["runs"] = [each for each in own if each["precision"] == "fp32"]
    (folder / "plan.json").write_text(json.dumps(plan))
    job = json.loads((folder / "pytorch-ablation-fp32-1/job.json").read_text())
    job["schedule"]["seconds"] = 1.0
    (folder / "pytorch-ablation-fp32-1/job.json").write_text(json.dumps(job))
    return folder


@pytest.fixture(scope="module")
def found(prepared: Path) -> dict[str, Any]:
    return run(prepared, interpreter_for("pytorch"), 600.0)


@pytest.mark.costly
@pytest.mark.framework("pytorch")
def test_products_of_all_sizes_are_probed_and_loops_compared(found: dict[str, Any]) -> None:
    alone = next(each for each in found["runs"] if each["kind"] == "session")
    assert set(alone["probes"].values()) == {"convolutions fp32, matrix products fp32"}
    assert list(map(int, alone["probes"])) == list(first_minutes.SIZES)
    low, high = alone["interval"]
    assert low <= alone["clock_over_plain"] <= high
    assert (len(alone["plain_s"]), len(alone["clock_s"]), alone["steps"]) == (12, 12, 10)
    assert alone["tick_s"] >= 0.0


@pytest.mark.costly
@pytest.mark.framework("pytorch")
def test_stages_sum_to_the_step_and_are_held_against_the_plain_loop(found: dict[str, Any]) -> None:
    apart = next(each for each in found["runs"] if each["kind"] == "ablation")
    assert math.isclose(sum(apart["added_s"].values()), apart["stages_s"]["step"])
    assert apart["copied_bytes"] == 8 * (28 * 28 + 8)
    assert found["derived"]["pytorch"]["breakdown_over_plain"] > 0.0


@pytest.mark.costly
@pytest.mark.framework("pytorch")
def test_what_no_time_is_left_for_is_named(prepared: Path) -> None:
    (prepared / "found.jsonl").unlink(missing_ok=True)  # what an earlier test ran would not be run again
    late = run(prepared, interpreter_for("pytorch"), 1.0)
    assert late["not_begun"] == [f"pytorch-{kind}-fp32-1: no time was left" for kind in ("session", "ablation")]


@pytest.fixture
def in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A folder whose launches are not made, and the names of those that would be, as they begin."""
    first_minutes.prepare(tmp_path / "gpu", "cpu", "lenet5", batch=8, steps=10)
    begun: list[str] = []
    shown = {"clock_over_plain": 1.002, "interval": [0.99, 1.01], "agrees": True}
    apart = {"blocks": 6, "stages_s": {"step": 0.01}, "added_s": {}}

    def launched(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
        begun.append(folder.name)
        return result

    monkeypatch.setattr(first_minutes, "_ask", lambda *_: {"code": 0, "said": "", "error": ""})
    monkeypatch.setattr(first_minutes, "_session", lambda folder, *_: launched(folder, shown))
    monkeypatch.setattr(first_minutes, "_ablation", lambda folder, *_: launched(folder, apart))
    return tmp_path / "gpu", begun


def test_what_all_frameworks_say_comes_before_what_one_says_at_length(in_turn: tuple[Path, list[str]]) -> None:
    folder, begun = in_turn
    first_minutes.run(folder, 60.0)
    frameworks = list(first_minutes.FRAMEWORKS)
    first = [f"{name}-{kind}-fp32-1" for kind in ("session", "ablation") for name in frameworks]
    assert begun[: len(first)] == first
    assert begun[len(first) :] == ["pytorch-session-bf16-1", "pytorch-ablation-fp32-2", "jax-ablation-fp32-2"]


def test_each_verdict_is_printed_as_it_ends_and_another_run_goes_on_behind_it(
    in_turn: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the machine was taken away while a line was written, and where a launch had failed."""
    folder, begun = in_turn
    first_minutes.run(folder, 60.0)
    printed = [
        line.rpartition(" (")[0] for line in capsys.readouterr().err.splitlines()
    ]  # behind it is how long it took
    assert printed[:4:3] == [
        "pytorch-session-fp32-1: held: clock over plain loop 1.002 (0.990 to 1.010)",
        "pytorch-ablation-fp32-1: 6 blocks, a step of 10 ms",
    ]
    order = [*begun]
    lines = [line for line in (folder / "found.jsonl").read_text().splitlines() if line]
    failed = json.dumps({**json.loads(lines[0]), "error": "out of memory"})
    (folder / "found.jsonl").write_text("\n".join([failed, *lines[1:3], lines[3][:20]]))
    begun.clear()
    found = first_minutes.run(folder, 60.0)
    assert begun == [order[0], *order[3:]]
    assert sorted(each["folder"] for each in found["runs"]) == sorted(order)
    begun.clear()
    first_minutes.run(folder, 60.0)
    assert begun == []


def test_runs_of_more_workers_than_devices_are_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        {
            "framework": "pytorch",
            "kind": "ablation",
            "precision": "fp32",
            "workers": 2,
            "folder": "two",
            "launcher": "local",
        }
    ]
    (tmp_path / "plan.json").write_text(json.dumps({"device": "cuda", "steps": 10, "runs": runs}))
    monkeypatch.setattr(first_minutes, "_smi", lambda: "NVIDIA H100 80GB HBM3, 580.65.06, 700.00 W")
    monkeypatch.setattr(first_minutes, "_ask", lambda *_: {"code": 0, "said": "", "error": ""})
    assert first_minutes.run(tmp_path, 60.0)["not_begun"] == ["two: needs 2 devices, here are 1"]


class SimulatedLoops:
    """A session and a clock in simulated time, on a machine whose speed drifts by half and back."""

    def __init__(self, tick_share: float, noise: float) -> None:
        self.now = 0.0
        self._tick_share, self._noise, self._ends = tick_share, noise, list[float]()
        self._chance = random.Random(1)

    def _pass(self, seconds: float) -> None:
        slow = 1.0 + 0.5 * math.sin(self.now / 3000.0)
        self.now += seconds * slow * self._chance.lognormvariate(0.0, self._noise)

    def step(self) -> None:
        self._pass(1.0)

    def tick(self) -> None:
        self._pass(self._tick_share)
        self._ends.append(self.now)

    def drain(self) -> list[float]:
        ends, self._ends = self._ends, []
        return ends


@pytest.mark.parametrize(
    ("tick_share", "noise", "agrees"), [(1e-9, 0.01, True), (0.03, 0.01, False), (1e-9, 1.0, None)]
)
def test_a_clock_that_costs_three_percent_is_told_from_one_that_costs_nothing_while_a_machine_drifts(
    monkeypatch: pytest.MonkeyPatch, tick_share: float, noise: float, agrees: bool | None
) -> None:
    """And neither is claimed where the noise hides it."""
    loops = SimulatedLoops(tick_share, noise)
    for name in ("monotonic", "process_time"):
        monkeypatch.setattr(first_minutes.time, name, lambda: loops.now)
    opened = SimpleNamespace(step=loops.step, wait=lambda: None)
    found = first_minutes._compared(opened, loops, 100)
    assert found["agrees"] is agrees
    low, high = found["interval"]
    assert low <= 1.0 + tick_share <= high


def test_workers_that_mpiexec_starts_are_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_minutes.prepare(tmp_path / "gpu", "cpu", "lenet5", batch=8, steps=10)
    monkeypatch.setattr(first_minutes, "_ask", lambda *_: {"code": 0, "said": "", "error": ""})
    monkeypatch.setattr(first_minutes, "_session", lambda *_: {"error": "not asked"})
    monkeypatch.setattr(first_minutes, "_ablation", lambda *_: {"error": "not asked"})
    said = "chainer-ablation-fp32-2: mpiexec starts its workers, which this program does not"
    assert first_minutes.run(tmp_path / "gpu", 60.0)["not_begun"] == [said]


def test_the_kept_runs_on_processors_are_the_tables_of_all_their_frameworks() -> None:
    kept = [json.loads(path.read_text()) for path in KEPT]
    lines = first_minutes.table(kept).splitlines()
    for framework in first_minutes.FRAMEWORKS:
        assert any(line.startswith(f"| {framework} | fp32 | convolutions fp32") for line in lines)
        assert any(line.startswith(f"| {framework}, 1 | step |") for line in lines)
    for framework in ("jax", "pytorch"):
        assert any(line.startswith(f"| {framework}, 2 | exchange |") for line in lines)
    assert all("error" not in each for found in kept for each in found["runs"])
