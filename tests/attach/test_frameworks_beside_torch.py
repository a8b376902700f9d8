"""Small scripts of JAX, TensorFlow, Chainer, MXNet, Paddle: results are their own, the record has their steps."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from launching import interpreter_for

from steptime.attach.folder import environment, write_hook

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "attach"))
import faults

STEPS = 12
EVALUATED = 5
"""The step that an evaluation follows, in every script."""
COMPILED = ("jax", "tensorflow")
FRAMEWORKS = [pytest.param(name, marks=pytest.mark.framework(name)) for name in faults.SCRIPTS if name != "pytorch"]


@dataclass
class Runs:
    """How a script ended alone, attached, and with a hook that raises; and the record of the second."""

    framework: str
    alone: tuple[int, str]
    attached: tuple[int, str]
    faulty: tuple[int, str]
    raised: int
    lines: list[dict]

    def of(self, kind):
        return [line for line in self.lines if line["kind"] == kind]


@pytest.fixture(scope="module", params=FRAMEWORKS)
def runs(request, tmp_path_factory):
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    python = interpreter_for(name)
    alone = faults.train(python, folder, STEPS, {}, name)
    variables = environment(write_hook(folder / "own"), folder / "kept", lines=False, flops=True)
    attached = faults.train(python, folder, STEPS, variables, name)
    faulty, raised = faults.faulty_run(python, folder, STEPS, 0.3, 1, name)
    (path,) = (folder / "kept").glob("*.jsonl")
    return Runs(name, alone, attached, faulty, raised, list(map(json.loads, path.read_text().splitlines())))


def test_what_is_trained_and_printed_is_equal_to_the_bit(runs):
    assert runs.alone[0] == 0, runs.alone[1]
    assert runs.attached == runs.alone
    assert runs.of("fault") == []


def test_faults_in_the_hooks_change_nothing(runs):
    assert runs.raised > STEPS
    assert runs.faulty == runs.alone


def test_every_update_is_a_step_and_steps_adjoin(runs):
    steps = runs.of("step")
    assert [step["number"] for step in steps] == list(range(STEPS))
    ends = [step["begin_ns"] + step["duration_ns"] for step in steps]
    assert [step["begin_ns"] for step in steps[1:]] == ends[:-1]


def test_regions_and_gaps_add_up_to_the_step(runs):
    for step in runs.of("step")[1:]:  # the gap before the first one begins with the process
        parts = [step["regions"], step["gaps"]]
        parts += [step["apart"][name] for name in ("regions", "gaps") if "apart" in step]
        assert sum(sum(part.values()) for part in parts) == step["duration_ns"]


def test_an_evaluation_is_apart_from_the_steps_around_it(runs):
    apart = [step["number"] for step in runs.of("step") if "apart" in step]
    # Without a loader a step ends with its update, and what follows lies in the next.
    no_loader = "no_loader" in runs.of("step")[-1].get("flags", [])
    assert apart == [EVALUATED + 1 if no_loader else EVALUATED]


def test_phases_of_a_step(runs):
    found = set.intersection(*(set(step["regions"]) for step in runs.of("step")[1:]))
    expected = {
        "jax": {"call"},
        "tensorflow": {"input", "call"},
        "chainer": {"input", "forward", "backward", "update"},
        "mxnet": {"forward", "backward", "update"},
        "paddle": {"input", "forward", "backward", "update"},
    }
    assert found == expected[runs.framework]


def test_the_first_step_of_a_compiled_function_is_its_compilation(runs):
    first = runs.of("step")[0]["regions"]
    assert ("compile" in first) == (runs.framework in COMPILED)
    assert "call" not in first


def test_phases_that_a_library_does_not_show_are_said_with_the_reason(runs):
    said = {phase for line in runs.of("unseen") for phase in line["phases"] if line["reason"]} - {"samples", "tokens"}
    hidden = {"forward", "backward", "update", "comm_exposed", "sync_wait"}
    assert said == (set() if runs.framework in ("chainer", "paddle") else hidden)


def test_the_device_time_of_a_jax_step_is_known(runs):
    if runs.framework != "jax":
        assert runs.of("device") == []
        return
    timed = {line["step"]: line["regions"]["call"] for line in runs.of("device")}
    assert sorted(timed) == list(range(1, STEPS))  # the first one is the compilation
    assert all(timed.values())


def test_the_precision_in_which_a_compiled_step_multiplies_is_known(runs):
    known = [(line["precisions"], line["device"]) for line in runs.of("weights")]
    assert known == ([(["fp32"], "cpu")] if runs.framework in COMPILED else [])


def test_the_arithmetic_of_a_compiled_step_is_counted_when_asked(runs):
    products = 2 * 4 * 16 * 16 * (5 + 5 + 4)  # of five layers: forward, of weights, of inputs but the first
    counted = [line["forward"] for line in runs.of("flops")]
    assert len(counted) == (runs.framework in COMPILED)
    # TensorFlow's are those of products; XLA counts what is done with single numbers, too.
    assert all(products <= each < (1.3 if runs.framework == "jax" else 1.0001) * products for each in counted)
