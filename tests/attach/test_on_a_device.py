"""What of `attach` only a CUDA device can show, beside loops that time themselves; ``pytest --device cuda`` runs it."""

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launching import interpreter_for
from test_small_jax_states import KINDS

from steptime.attach.folder import environment, write_hook
from steptime.catalog.accelerators import find_accelerators

pytestmark = pytest.mark.cuda
SCRIPT = Path(__file__).parents[2] / "benchmarks/attach/scripts/on_gpu_short.py"
ROUNDS = 3


@pytest.fixture(autouse=True)
def on_a_device() -> None:
    """Skip the test where there is no device."""
    if not len(find_accelerators()):
        pytest.skip("no CUDA device on this machine")


def trained(
    folder: Path, kind: str, milliseconds: float, *, attached: bool, **variables: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what the script prints, and the lines of its record, none of a run without attach."""
    folder.mkdir()
    hook = environment(write_hook(folder / "hook"), folder / "record", lines=True, flops=False) if attached else {}
    done = subprocess.run(
        [interpreter_for("pytorch", device="cuda"), SCRIPT, kind, str(milliseconds)],
        cwd=folder,
        env={**os.environ, **hook, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    lines = [json.loads(line) for path in (folder / "record").glob("*.jsonl") for line in path.read_text().splitlines()]
    return json.loads(done.stdout.splitlines()[-1]), lines


def steady(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of the device behind the warm-up, by whose clock steps have a length."""
    return [line for line in lines if line["kind"] == "device" and line["step"] > 250 and "step_ns" in line]


def test_a_step_by_the_clock_of_the_device_is_as_long_as_by_events_of_the_script(tmp_path: Path) -> None:
    own, lines = trained(tmp_path / "run", "eager", 10.0, attached=True, EVENTS="1")
    step_s = statistics.mean(line["step_ns"] for line in steady(lines)) * 1e-9
    assert step_s == pytest.approx(own["events_s"], rel=0.02)


def test_replays_of_a_network_compiled_with_cuda_graphs_are_parts_of_their_passes(tmp_path: Path) -> None:
    _, lines = trained(tmp_path / "run", "reduced", 10.0, attached=True)
    parted = [line for line in steady(lines) if "regions" in line]
    sums = {name: sum(line["regions"].get(name, 0) for line in parted) for name in ("forward", "backward", "replay")}
    whole = sum(line["step_ns"] for line in parted)
    assert sums["replay"] == 0
    assert sums["forward"] > 0.1 * whole
    assert sums["backward"] > 0.2 * whole


def test_a_device_that_waits_for_small_kernels_waits_no_more_in_a_cuda_graph(tmp_path: Path) -> None:
    """The least share in which it had nothing to do is a gain that a graph of the same step reaches."""
    eager, lines = trained(tmp_path / "eager", "small", 0.0, attached=True)
    graph, _ = trained(tmp_path / "graph", "small_graph", 0.0, attached=False)
    parted = [line for line in steady(lines) if "waited_ns" in line]
    least = sum(line["waited_ns"][0] for line in parted) / sum(line["step_ns"] for line in parted)
    assert least > 0.1
    assert graph["step_s"] < 1.1 * (1.0 - least) * eager["step_s"]


@pytest.mark.parametrize(("milliseconds", "most"), [(2.5, 1.03), (10.0, 1.01)])
def test_attach_costs_a_short_step_little_and_less_than_a_profiler_of_the_device(
    tmp_path: Path, milliseconds: float, most: float
) -> None:
    """Medians of interleaved runs of the same network."""
    layers = str(trained(tmp_path / "first", "eager", milliseconds, attached=False)[0]["layers"])
    times: dict[str, list[float]] = {"alone": [], "attached": [], "profiled": []}
    for number in range(ROUNDS):
        for name, own in times.items():
            kind = "profiled" if name == "profiled" else "eager"
            folder, attached = tmp_path / f"{name}-{number}", name == "attached"
            own.append(trained(folder, kind, milliseconds, attached=attached, LAYERS=layers)[0]["step_s"])
    alone, attached_s, profiled = (statistics.median(each) for each in times.values())
    assert attached_s / alone <= most, times
    assert attached_s <= profiled, times


def test_attached_steps_of_jax_train_the_same_bits_where_xla_computes_the_same_twice(tmp_path: Path) -> None:
    """By deterministic operations without a search for kernels; else two runs alone may differ, too."""
    (tmp_path / "script.py").write_text(KINDS)
    words = [interpreter_for("jax", device="cuda"), "script.py"]
    flags = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"}
    attached = environment(write_hook(tmp_path / "hook"), tmp_path / "record", lines=False, flops=False)
    ends = [
        subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **flags, **more}, capture_output=True, text=True, check=True
        ).stdout
        for more in ({}, {}, attached)
    ]
    assert ends[1] == ends[0]
    assert ends[2] == ends[0]
