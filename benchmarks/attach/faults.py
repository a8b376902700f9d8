"""Raise in the hooks of an attached script, again and again: the script's result must be the same each time.

`python benchmarks/attach/faults.py [--faults 10000] [FRAMEWORK …]` runs the same training script, once without the
hook and then with a hook whose every part raises with the probability of that run, before its work, after it or
half-way, and whose patches stay although they failed. It writes faults.json.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steptime.attach.folder import environment, write_hook
from steptime.runner.preparation import ready_interpreter

RESULT = Path(__file__).with_name("faults.json")
RATES = (1.0, 0.5, 0.1, 0.02)
MOST_RUNS = 40
# Lines of a log with the time of day.
TIMED = r"^([IWE]\d{4} .*|WARNING: All log messages before absl.*)\n"

PYTORCH = """
import copy, hashlib, pickle, sys
import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
samples = [(torch.randn(16), i % 4) for i in range(512)]
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
calls = 0
forward = net.forward

def counted(x):
    global calls
    calls += 1
    return forward(x)

net.forward = counted
for step, (x, y) in zip(range(int(sys.argv[1])), (batch for _ in range(1000) for batch in DataLoader(samples, 4))):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        with torch.no_grad():
            net(samples[0][0][None])
        torch.save(net.state_dict(), sys.argv[2])
del net.forward
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
print("RESULT", loss.item().hex(), digest, calls, flush=True)
"""

JAX = """
import functools, hashlib, sys, threading
import jax
import jax.numpy as jnp
import numpy as np

steps, draw = int(sys.argv[1]), np.random.default_rng(0)
traced = 0

def loss_of(weights, x, y):
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)

@functools.partial(jax.jit, donate_argnums=0)
def step(weights, x, y):
    global traced
    traced += 1
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
    return [w - 0.1 * g for w, g in zip(weights, gradients)], loss

test = jax.jit(loss_of)
weights = [jnp.asarray(draw.standard_normal((16, 16)) * 0.1) for _ in range(5)]
for number in range(steps):
    x = draw.standard_normal((4, 16))
    weights, loss = step(weights, x, x)
    if number % 3 == 2:
        float(loss)
    if number == 5:
        seen = [float(test(weights, x, x)) for _ in range(3)]
several = jax.vmap(test, (None, 0, 0))(weights, x[:, None], x[:, None])
slope = jax.grad(test)(weights, x, x)[0]
digest = hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in [*weights, several, slope])).hexdigest()
print("RESULT", float(loss).hex(), digest, traced, seen, isinstance(step, type(jax.jit(abs))), step.__name__)
print(step.lower(weights, x, x).as_text()[:20], flush=True)
"""
TENSORFLOW = """
import hashlib, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

tf.random.set_seed(0)
weights = [tf.Variable(tf.random.normal((16, 16), stddev=0.1)) for _ in range(5)]
seen, traced = tf.Variable(0.0, trainable=False), 0

def loss_of(x):
    y = x
    for w in weights:
        y = tf.tanh(y @ w)
    return tf.reduce_mean((y - x) ** 2)

@tf.function
def step(x):
    global traced
    traced += 1
    with tf.GradientTape() as tape:
        loss = loss_of(x)
    for w, g in zip(weights, tape.gradient(loss, weights)):
        w.assign_sub(0.1 * g)
    return loss

@tf.function
def test(x):
    seen.assign_add(loss_of(x))

samples = tf.data.Dataset.from_tensor_slices(tf.random.normal((64, 4, 16))).repeat()
for number, x in zip(range(int(sys.argv[1])), samples):
    loss = step(x)
    if number == 5:
        for _ in range(3):
            test(x)
digest = hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest()
print("RESULT", float(loss).hex(), digest, traced, float(seen).hex(), flush=True)
"""
CHAINER = """
import hashlib, sys
import chainer
import numpy as np

np.random.seed(0)
calls = 0

class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first, self.second = chainer.links.Linear(16, 16), chainer.links.Linear(16, 4)

    def forward(self, x):
        global calls
        calls += 1
        return self.second(chainer.functions.relu(self.first(x)))

samples = [(np.random.rand(16).astype("f"), np.int32(i % 4)) for i in range(64)]
net, optimizer = chainer.links.Classifier(Net()), chainer.optimizers.Adam()
optimizer.setup(net)
loader = chainer.iterators.SerialIterator(samples, 4, shuffle=False)
held_out = chainer.iterators.SerialIterator(samples, 4, repeat=False, shuffle=False)
for number in range(int(sys.argv[1])):
    x, y = chainer.dataset.concat_examples(loader.next())
    net.cleargrads()
    loss = net(x, y)
    loss.backward()
    optimizer.update()
    if number == 5:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for _ in range(3):
                net(*chainer.dataset.concat_examples(next(held_out)))
        chainer.serializers.save_npz(sys.argv[2], net)
digest = hashlib.sha256(b"".join(p.array.tobytes() for p in net.params())).hexdigest()
print("RESULT", float(loss.array).hex(), digest, calls, flush=True)
"""
MXNET = """
import hashlib, sys
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

mx.random.seed(0)
np.random.seed(0)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(16, activation="relu"), gluon.nn.Dense(4))
net.initialize(mx.init.Xavier())
net.hybridize()
trainer, loss_of = gluon.Trainer(net.collect_params(), "adam"), gluon.loss.SoftmaxCrossEntropyLoss()
for number in range(int(sys.argv[1])):
    x = mx.nd.array(np.random.rand(4, 16))
    with autograd.record():
        loss = loss_of(net(x), mx.nd.array([0, 1, 2, 3]))
    loss.backward()
    trainer.step(4)
    if number == 5:
        for _ in range(3):
            net(x).asnumpy()
digest = hashlib.sha256(b"".join(p.data().asnumpy().tobytes() for p in net.collect_params().values())).hexdigest()
print("RESULT", float(loss.mean().asscalar()).hex(), digest, flush=True)
"""
PADDLE = """
import hashlib, sys
import numpy as np
import paddle

paddle.seed(0)
draw, calls = np.random.default_rng(0), 0
# One epoch, read to its end: the thread of a loader that is left in its middle may outlive the interpreter.
samples = [(draw.standard_normal(16).astype("f"), np.int64(i % 4)) for i in range(4 * int(sys.argv[1]))]

class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = paddle.nn.Linear(16, 16), paddle.nn.Linear(16, 4)

    def forward(self, x):
        global calls
        calls += 1
        return self.second(paddle.nn.functional.relu(self.first(x)))

net, loss_of = Net(), paddle.nn.CrossEntropyLoss()
optimizer = paddle.optimizer.Adam(1e-2, parameters=net.parameters())
for number, (x, y) in enumerate(paddle.io.DataLoader(samples, batch_size=4)):
    loss = loss_of(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    if number == 5:
        net.eval()
        for held_x, held_y in paddle.io.DataLoader(samples[:12], batch_size=4):
            loss_of(net(held_x), held_y)
        net.train()
        paddle.save(net.state_dict(), sys.argv[2])
digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in net.parameters())).hexdigest()
print("RESULT", float(loss).hex(), digest, calls, flush=True)
"""
SCRIPTS = {
    "pytorch": PYTORCH,
    "jax": JAX,
    "tensorflow": TENSORFLOW,
    "chainer": CHAINER,
    "mxnet": MXNET,
    "paddle": PADDLE,
}

RAISING = """

def _planted(function, rate, chance, counted):
    import functools

    @functools.wraps(function)
    def raising(*arguments, **settings):
        if chance.random() < rate / 2:
            counted[0] += 1
            raise RuntimeError("planted before")
        result = function(*arguments, **settings)
        if chance.random() < rate / 2:
            counted[0] += 1
            raise RuntimeError("planted after")
        return result

    return raising


def _plant():
    import atexit
    import os
    import random

    rate, chance, counted = float(os.environ["PLANTED_RATE"]), random.Random(int(os.environ["PLANTED_SEED"])), [0]
    if __name__.endswith("patches"):
        global measured
        inner = measured

        def measured(patch, function, before, after, compiling=never):
            before, after = _planted(before, rate, chance, counted), _planted(after, rate, chance, counted)
            return inner(patch, function, before, after, compiling)

        fault = Patch.fault

        def kept(self, error):
            fault(self, error)
            self.on = True

        Patch.fault = kept
        Patch.remove = lambda self: None
    else:
        for name, value in list(vars(Recorder).items()):
            if callable(value) and not name.startswith("__") and name not in ("begin_again", "faulted"):
                setattr(Recorder, name, _planted(value, rate, chance, counted))

    def count():
        with open(os.environ["PLANTED_COUNT"], "a") as file:
            file.write("%d\\n" % counted[0])

    atexit.register(count)


_plant()
"""


def plant(hook: Path) -> None:
    """Make the copies of our code in ``hook`` raise as the environment says."""
    for name in ("patches", "recorder"):
        path = hook / "steptime_attach" / f"{name}.py"
        path.write_text(path.read_text(encoding="utf-8") + RAISING, encoding="utf-8")


def train(
    python: Path, folder: Path, steps: int, variables: Mapping[str, str], framework: str = "pytorch"
) -> tuple[int, str]:
    """Train ``steps`` steps; return the exit code and what was printed."""
    script = folder / "script.py"
    script.write_text(SCRIPTS[framework], encoding="utf-8")
    environ = {**os.environ, **variables}
    command = [str(python), str(script), str(steps), str(folder / "net.pt")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + re.sub(TIMED, "", done.stderr, flags=re.MULTILINE)


def faulty_run(  # noqa: PLR0913, PLR0917 - what a run is made of
    python: Path, folder: Path, steps: int, rate: float, seed: int, framework: str = "pytorch"
) -> tuple[tuple[int, str], int]:
    """Train with a hook that raises with probability ``rate``; return what ``train`` does, and the faults raised."""
    hook, count = write_hook(folder / "hook"), folder / "count"
    plant(hook)
    variables = environment(hook, folder / "record", lines=False, flops=False)
    variables |= {"PLANTED_RATE": str(rate), "PLANTED_SEED": str(seed), "PLANTED_COUNT": str(count)}
    ended = train(python, folder, steps, variables, framework)
    faults = sum(map(int, count.read_text().split())) if count.exists() else 0
    return ended, faults


def faulty_runs(framework: str, steps: int, wanted: int) -> list[dict[str, Any]]:
    """Raise at least ``wanted`` faults in the hooks of ``framework``; return what each run did."""
    python = ready_interpreter(framework)
    if python is None:
        sys.exit(f"no environment for {framework}: run 'steptime env create {framework}'")
    with tempfile.TemporaryDirectory() as name:
        expected = train(python, Path(name), steps, {}, framework)
    if expected[0]:
        sys.exit(f"{framework} fails without the hook, too: {expected[1][-1000:]}")
    runs: list[dict[str, Any]] = []
    while sum(run["faults"] for run in runs) < wanted and len(runs) < MOST_RUNS:
        rate, seed = RATES[len(runs) % len(RATES)], len(runs)
        with tempfile.TemporaryDirectory() as name:
            ended, faults = faulty_run(python, Path(name), steps, rate, seed, framework)
        runs.append({"framework": framework, "rate": rate, "seed": seed, "faults": faults, "same": ended == expected})
        print(runs[-1], "" if ended == expected else ended[1][-1000:], flush=True)
    return runs


def main() -> None:
    """Raise as many faults as were asked for, in each framework that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("frameworks", nargs="*", choices=[[], *SCRIPTS])
    arguments = parser.parse_args()
    named = arguments.frameworks or list(SCRIPTS)
    kept = json.loads(RESULT.read_text())["runs"] if RESULT.exists() else []
    runs = [run for run in kept if run["framework"] not in named]
    for framework in named:
        runs += faulty_runs(framework, arguments.steps, arguments.faults)
    total, harmed = sum(run["faults"] for run in runs), sum(not run["same"] for run in runs)
    RESULT.write_text(json.dumps({"faults": total, "harmed": harmed, "runs": runs}, indent=1) + "\n")
    print(f"{total} faults in {len(runs)} runs, {harmed} of which ended otherwise than without the hook")


if __name__ == "__main__":
    main()
