"""A user's own module in JAX and in Keras: raced and checked against one process, and what is said of a wrong one."""

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from launching import interpreter_for, interpreter_with
from program import steptime

import steptime as package
from steptime.results.equivalence_records import EquivalenceResult
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store

BATCHES = """\
import os
import numpy

def loader(rank, size, batch):
    stream = numpy.random.RandomState(rank)
    while True:
        inputs = stream.randn(batch, 20).astype("float32")
        yield inputs, inputs[:, :4].argmax(1)

def same(rank, size, batch):
    return loader(0, size, batch)

def short(rank, size, batch):
    inputs, targets = next(loader(rank, size, batch))
    return [(inputs, targets), (inputs[1:], targets[1:])]

def double(rank, size, batch):
    yield numpy.zeros((batch, 20)), numpy.zeros(batch, int)

def ended(rank, size, batch):
    return [next(loader(rank, size, batch))]

def no_module():
    return {"weights": 3}
"""
JAX = (
    BATCHES
    + """
import jax
from jax import numpy as jnp

class Linear:
    def init(self, key, inputs):
        return {"kernel": jax.random.normal(key, (inputs.shape[-1], 4)), "bias": jnp.zeros(4)}

    def apply(self, parameters, inputs):
        return inputs @ parameters["kernel"] + parameters["bias"]

class Restless(Linear):
    def apply(self, parameters, inputs):
        return super().apply(parameters, inputs) * (1 + os.urandom(1)[0] / 256)

class Keeping(Linear):
    def init(self, key, inputs):
        return {"params": super().init(key, inputs), "batch_stats": {"mean": jnp.zeros(4)}}

class Single(Linear):
    def apply(self, parameters, inputs):
        return super().apply(parameters, inputs).astype("float32")

def build():
    return Linear()

def restless():
    return Restless()

def keeping():
    return Keeping()

def single():
    return Single()

def kept_back():
    from steptime.frameworks.jax import training_step
    mean = training_step.mean_of_all
    training_step.mean_of_all = lambda own, pack_kb: dict(mean(own, pack_kb), bias=own["bias"])
    return Linear()
"""
)
KERAS = (
    BATCHES
    + """
import keras
import tensorflow as tf

class Restless(keras.Model):
    def __init__(self):
        super().__init__()
        self.last = keras.layers.Dense(4)

    def call(self, inputs, training=False):
        return self.last(inputs) * (1 + os.urandom(1)[0] / 256)

def build():
    return keras.Sequential([keras.layers.Dense(8), keras.layers.Dropout(0.5), keras.layers.Dense(4)])

def restless():
    return Restless()

def normed():
    return keras.Sequential([keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(4)])

def single():
    return keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(4, dtype="float32")])

def single_only():
    if keras.config.floatx() == "float64":
        raise ValueError("single precision only")
    return build()

def kept_back():
    from steptime.libraries.tensorflow.training_step import TensorFlowTraining
    combine = TensorFlowTraining.combine
    TensorFlowTraining.combine = lambda self, own: list(combine(self, own))[:-1] + [own[-1] / self._share]
    return build()
"""
)
STUDY = """\
workloads: [{workloads}]
frameworks: {framework}
strategies: allreduce
workers: 2
batch_per_worker: 16
launches: {{min: 1, max: 1}}
seconds_per_launch: 0.2s
equivalence: {{steps: 3, repeats: 1}}
"""
SHORT = "\nexclude: [{workers: 1, strategies: allreduce}]\nlaunches: {min: 1, max: 1}\nseconds_per_launch: 0.2s\n"
SHORT += "equivalence: {steps: 3, repeats: 1}\n"
KINDS = [
    pytest.param("jax", JAX, marks=pytest.mark.framework("jax")),
    pytest.param("tensorflow", KERAS, marks=pytest.mark.framework("tensorflow")),
]
NAMES = [pytest.param(name, marks=pytest.mark.framework(name)) for name in ("jax", "tensorflow")]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, EquivalenceResult]]:
    """Return what returns the checks of a framework's modules by their names: one study of those below."""

    @cache
    def of(framework: str) -> dict[str, EquivalenceResult]:
        interpreter_for(framework)
        text, names = CHECKED[framework]
        folder = tmp_path_factory.mktemp(framework)
        (folder / "mine.py").write_text(text)
        workloads = ", ".join(f"{{name: {name}, module: mine:{name}, data: mine:loader}}" for name in names)
        (folder / "study.yaml").write_text(STUDY.format(workloads=workloads, framework=framework))
        steptime("run", "study.yaml", "-o", "results", cwd=folder, check=1)
        return {check.workload: check for check in Store.open(folder / "results").equivalence()}

    return of


CHECKED = {
    "jax": (JAX, ["kept_back", "restless"]),
    "tensorflow": (KERAS, ["kept_back", "restless", "normed"]),
}


@pytest.mark.parametrize(("framework", "text"), KINDS)
def test_what_workloads_new_writes_is_checked_and_timed_alone_and_by_two_workers(framework, text, tmp_path):
    interpreter_for(framework)
    steptime("workloads", "new", "mine", "--framework", framework, cwd=tmp_path)
    study = tmp_path / "mine.yaml"
    study.write_text(study.read_text().replace("\nbudget: 5m\n", SHORT))

    steptime("run", "mine.yaml", "-o", "results", cwd=tmp_path)

    store = Store.open(tmp_path / "results")
    assert [check.passed for check in store.equivalence()] == [True, True]
    values = 20 * 64 + 64 + 64 * 4 + 4
    for trial in store.trials():
        (launch,) = store.records(TIMING, trial.id)
        own = launch.workers[0].facts["own"]
        assert (launch.status, own["parameters"], own["gradient_bytes"]) == ("ok", values, 4 * values)
        first, last = 2 * 20 * 64, 2 * 64 * 4
        flops = 3 * (first + last) - first  # inputs have no gradient
        assert own["flop_per_sample"] == (flops if framework == "jax" else None)


@pytest.mark.parametrize("framework", NAMES)
def test_a_gradient_that_is_not_exchanged_is_refused_by_the_name_of_its_parameter(framework, checked):
    check = checked(framework)["kept_back"]
    assert not check.passed
    assert f"the gradient of {'bias' if framework == 'jax' else 'dense_1.bias'} in round 1" in check.reason


@pytest.mark.parametrize("framework", NAMES)
def test_a_module_that_is_not_deterministic_is_refused(framework, checked):
    check = checked(framework)["restless"]
    assert check.reason.startswith("the module is not deterministic")


@pytest.mark.framework("tensorflow")
def test_batch_normalisation_of_keras_passes_and_is_explained(checked):
    check = checked("tensorflow")["normed"]
    assert check.passed, check.reason
    assert check.explanation.startswith("each worker normalises over its own batch (batch_normalization)")


ASKED = """\
import hashlib, json, sys
sys.path[:0] = sys.argv[1:3]
framework = sys.argv[3]
job = {"framework": framework, "seed": 0, "precision": "fp32", "device": "cpu", "threads": 1, "strategy": "single"}
job["optimizer"] = {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.1}
job.update(batch_per_worker=4, options={}, own_reference={"shards": 2, "bits": 64, "updates": "together"})

class Context:
    rank, workers, local_rank = 0, 1, 0

def reference(own):
    if framework == "jax":
        import jax
        from steptime.frameworks.jax.own_module import JaxOwnReference
        jax.config.update("jax_enable_x64", False)  # as in a process of its own
        return JaxOwnReference(dict(job, workload={"own": own}), Context)
    from steptime.libraries.tensorflow.own_module import KerasOwnReference
    from steptime.libraries.tensorflow.training_step import TensorFlowTraining
    return KerasOwnReference(dict(job, workload={"own": own}), Context, TensorFlowTraining)

said = {}
for name, build, data in json.loads(sys.argv[4]):
    own = {"folder": sys.argv[2], "build": "mine:" + build, "data": "mine:" + data, "loss": None, "dropout": False}
    with open(sys.argv[2] + "/mine.py", "rb") as file:
        own["files"] = [["mine.py", hashlib.sha256(file.read()).hexdigest()]]
    try:
        one = reference(own)
        for _ in range(3):
            one.step()
        said[name] = one.facts()["own"]["bits"]
    except ValueError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
CASES = {
    "the same batches": ("build", "same", "gives the ranks 0 and 1 the same first batch"),
    "a short batch": ("build", "short", "has 3 samples in inputs, and 4 are asked for"),
    "double precision": ("build", "double", 'has float64 in inputs, and weights are float32; add .astype("float32")'),
    "no module": ("no_module", "loader", "returned dict, not a"),
    "double throughout": ("build", "loader", 64),
    "single inside": ("single", "loader", 32),
    "an end": ("build", "ended", 64),
}


@pytest.mark.parametrize(("framework", "text"), KINDS)
def test_one_process_is_told_what_is_wrong_and_computes_in_double_precision_where_it_can(framework, text, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    asked = [(name, build, data) for name, (build, data, _) in CASES.items()]
    asked += [("further", "keeping" if framework == "jax" else "single_only", "loader")]
    source = str(Path(package.__file__).parents[1])
    command = [str(interpreter_for(framework)), "-c", ASKED, source, str(tmp_path), framework, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for name, (_, _, expected) in CASES.items():
        assert said[name] == expected if isinstance(expected, int) else expected in said[name], (name, said[name])
    if framework == "jax":
        assert "a module that keeps batch_stats between steps" in said["further"]
    else:
        assert said["further"] == 32


FLAX = """\
import flax.linen as nn
import optax
from mine import loader

class Normed(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(4)(nn.LayerNorm()(nn.relu(nn.Dense(32)(inputs))))

def build():
    return Normed()

def loss(module, batch):
    inputs, targets = batch
    return optax.softmax_cross_entropy_with_integer_labels(module(inputs), targets).mean()
"""
PACKAGES = (
    "flax==0.12.8",
    "optax==0.2.8",
    "absl-py==2.5.1",
    "etils==1.15.0",
    "msgpack==1.2.4",
    "pygments==2.21.0",
    "pyyaml==6.0.4",
    "rich==15.0.0",
    "typing-extensions==4.16.0",
)
"""What flax.linen imports beside JAX's own."""


@pytest.mark.framework("jax")
@pytest.mark.further
def test_a_module_of_flax_with_a_loss_of_optax_is_checked_and_timed(tmp_path):
    python = interpreter_with("jax", PACKAGES, tmp_path / "libraries")
    subprocess.run([python, "-c", "import flax.linen, optax"], check=True)  # writes bytecode, as no launch does
    (tmp_path / "mine.py").write_text(JAX)
    (tmp_path / "flaxen.py").write_text(FLAX)
    workload = "{name: mine, module: flaxen:build, data: flaxen:loader, loss: flaxen:loss}"
    study = STUDY.format(workloads=workload, framework="jax")
    study += f"environments: {{jax: {{kind: existing, python: {python}}}}}\n"
    (tmp_path / "study.yaml").write_text(study)

    steptime("run", "study.yaml", "-o", "results", cwd=tmp_path)

    (check,) = Store.open(tmp_path / "results").equivalence()
    assert check.passed, check.reason
