"""JAX trains what the reference trains: alone, with gradients averaged by gloo, and from files."""

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import SIDE, photos
from launching import check_job, interpreter_for, launch, launch_ok, printed_in, timing_job, weight_error
from preloading import preloaded_interpreter

from steptime.catalog.workloads.layers import Network
from steptime.catalog.workloads.table import build_workload
from steptime.model.compute import work_of
from steptime.model.policies import step_graph
from steptime.worker.communication import END_OF_BACKWARD, PolicyContext

pytestmark = pytest.mark.framework("jax")

MOVING: dict[str, Any] = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}


COMPILED = """
import sys
import jax

seen = []
jax.monitoring.register_event_listener(lambda name, **_: seen.append(name))
jax.jit(lambda value: value * float(sys.argv[1]))(2.0)
print(*(sum(name.endswith(end) for name in seen) for end in ("cache_hits", "cache_misses")), flush=True)
"""


def test_processes_of_checks_load_what_one_of_them_compiled_and_compile_what_differs(tmp_path: Path) -> None:
    """Those that were forked from the process that imported JAX for them; a changed constant is another program."""
    (tmp_path / "program.py").write_text(COMPILED)
    python = preloaded_interpreter("jax", interpreter_for("jax"))

    def found(*command: str) -> list[str]:
        variables = {"STEPTIME_ROLE": "worker", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert found(str(python), "program.py", "3") == ["0", "1"]
    assert found(str(python), "program.py", "3") == ["1", "0"]
    assert found(str(python), "program.py", "4") == ["0", "1"]


@pytest.mark.parametrize("pack_kb", [1, 256])  # the contract tests have the default
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, pack_kb: int) -> None:
    """Whether some gradients travel together or each alone."""
    how: dict[str, Any] = {"batch": 8, "steps": 5, "optimizer": MOVING}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("jax", "allreduce", "lenet5", workers=2, options={"pack_kb": pack_kb}, **how)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert weight_error(result.weights[0], expected)[0] < 1e-4


def test_each_worker_normalises_its_own_batch(tmp_path: Path) -> None:
    """Batch statistics do not cross workers."""
    net = Network((3, 6, 6))
    x = net.batch_norm("norm", net.conv2d("conv", net.input, 4, 3))
    net.linear("output", net.flatten("flatten", x), 5)
    workload = net.finish("normalised", classes=5)
    oracle = check_job("reference", "single", workload, options={"shards": 2}, optimizer=MOVING)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    result = launch_ok(
        tmp_path, check_job("jax", "allreduce", workload, workers=2, optimizer=MOVING), workers=2, preloaded=True
    )
    assert weight_error(result.weights[0], expected)[0] < 1e-4


def test_what_is_dropped_differs_between_steps_layers_and_workers(tmp_path: Path) -> None:
    """Half of the values, and twice the rest."""
    net = Network((1000,))
    net.dropout("second", net.dropout("first", net.input, 0.5), 0.5)
    workload = net.finish("dropping", classes=1000).to_json()
    code = """
from steptime.frameworks.jax.network import JaxNetwork, import_jax
jax = import_jax(1, "cpu", 0)
import numpy
network = JaxNetwork(workload)
keys = [jax.random.fold_in(jax.random.key(worker), step) for worker in (0, 1) for step in (0, 1)]
found = [numpy.asarray(network.outputs({}, {}, numpy.ones((1, 1000), numpy.float32), key)[0]) for key in keys]
numpy.save(path, numpy.concatenate(found))
print("null")
"""
    printed_in("jax", code, workload=workload, path=str(tmp_path / "dropped.npy"))
    dropped = np.load(tmp_path / "dropped.npy")
    assert set(np.unique(dropped)) == {0.0, 4.0}
    assert np.all(np.abs((dropped > 0).mean(axis=1) - 0.25) < 0.1)
    assert len({row.tobytes() for row in dropped}) == 4


def test_the_number_of_helpers_does_not_change_what_is_trained_on(tmp_path: Path) -> None:
    """Batches come in the order of the plan, and chance belongs to a batch."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    found = []
    for processes in (0, 3):
        loader = photos(tmp_path, processes=processes)
        job = timing_job("jax", "single", "lenet5", loader=loader, batch=4, steps=7, **shape)
        found.append(launch_ok(tmp_path, job, preloaded=True).record("steps")["loss"])
    assert found[0] == found[1]


STEP = """
from steptime.frameworks.jax.network import JaxNetwork, import_jax
jax = import_jax(1, "cpu", 0)
import numpy
from steptime.frameworks.jax.optimizers import slots_of
from steptime.frameworks.jax.training_step import JaxStep
settings = dict(name="sgd", momentum=0.9, learning_rate=0.1, weight_decay=0.0)
job = dict(optimizer=settings, strategy="single", options=options)
network = JaxNetwork(workload, windows=options["windows"])
weights = {name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()}
variables = network.variables(weights)
kept = {slot: variables for slot in slots_of(settings)}
state = (variables, kept, {}, 0, jax.random.key_data(jax.random.key(0))[None])
program = JaxStep(network, job, None, None)
batch = numpy.zeros((2, 28, 28, 1), numpy.float32), numpy.zeros(2, numpy.int32)
print(json.dumps(program.compiled(program.train).lower(state, *batch).as_text()))
"""


@cache
def program_of_a_step(*, windows: str, donate: bool) -> str:
    """What JAX hands to XLA for a step of LeNet-5."""
    workload = build_workload("lenet5").to_json()
    shapes = {each["name"]: each["shape"] for layer in workload["layers"] for each in layer["parameters"]}
    options = {"windows": windows, "donate": donate}
    text: str = printed_in("jax", STEP, options=options, workload=workload, shapes=shapes)
    return text


def test_the_tiers_differ_in_who_computes_windows() -> None:
    """XLA's own pooling, with its scattering of gradients, is in the documented program and not in the tuned one."""
    documented = program_of_a_step(windows="lax", donate=True)
    tuned = program_of_a_step(windows="hand_written", donate=True)
    assert "reduce_window" in documented
    assert "select_and_scatter" in documented
    assert "reduce_window" not in tuned
    assert "stablehlo.convolution" in tuned  # the windows of LeNet-5 are none that a product computes faster


def test_memory_of_the_state_is_donated_where_the_job_says_so() -> None:
    """XLA's program names the arguments whose memory its results take."""
    assert "tf.aliasing_output" in program_of_a_step(windows="lax", donate=True)
    assert "tf.aliasing_output" not in program_of_a_step(windows="lax", donate=False)


TOGETHER = """
import types
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
from steptime.frameworks.jax.network import JaxNetwork, import_jax
jax = import_jax(1, "cpu", 0)
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from steptime.frameworks.jax.training_step import JaxStep
settings = dict(name="sgd", momentum=0.9, learning_rate=0.1, weight_decay=0.0)
job = dict(optimizer=settings, strategy="allreduce", options=dict(windows="lax", donate=True, pack_kb=pack_kb))
network = JaxNetwork(workload, windows="lax")
mesh = Mesh(numpy.array(jax.devices()), ("workers",))
alike, split = PartitionSpec(), PartitionSpec("workers")

def put(array, how):
    return jax.device_put(array, NamedSharding(mesh, how))

weights = {name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()}
variables = {name: put(array, alike) for name, array in network.variables(weights).items()}
keys = jax.random.key_data(jax.random.split(jax.random.key(0), 2))
state = (variables, dict(velocity=variables), {}, put(numpy.int32(0), alike), put(keys, split))
batch = put(numpy.zeros((4, 28, 28, 1), numpy.float32), split), put(numpy.zeros(4, numpy.int32), split)
program = JaxStep(network, job, mesh, types.SimpleNamespace(alike=alike, split=split))
print(json.dumps(program.compiled(program.train).lower(state, *batch).compile().as_text()))
"""


@pytest.mark.parametrize("pack_kb", [0, 16, 256])
def test_the_plan_sends_what_one_sum_of_the_compiled_step_holds(pack_kb: int) -> None:
    """All arrays in one sum, which waits for the last gradient."""
    workload = build_workload("lenet5")
    layers = workload.to_json()["layers"]
    shapes = {each["name"]: each["shape"] for layer in layers for each in layer["parameters"]}
    text = printed_in("jax", TOGETHER, pack_kb=pack_kb, workload=workload.to_json(), shapes=shapes)
    (summed,) = re.findall(r"= (.*) all-reduce\(", text)
    sizes = [4 * np.prod([int(axis) for axis in each.split(",")]) for each in re.findall(r"f32\[([\d,]+)\]", summed)]

    context = PolicyContext(workers=2, options={"pack_kb": pack_kb})
    plan = step_graph(work_of(workload), "jax", "allreduce", context).plan

    assert Counter(message.bytes for message in plan.messages) == Counter(sizes)
    assert {message.after for message in plan.messages} == {END_OF_BACKWARD}


def test_a_gpu_that_is_not_there_is_asked_for_in_vain(tmp_path: Path) -> None:
    """The message says that the environment has the build for CPUs."""
    result = launch(tmp_path, check_job("jax", "single", "lenet5", steps=1, device="cuda"), preloaded=True)
    assert "sees no GPU" in result.record("error")["message"]
