"""Trainings by MXNet and Paddle, of whatever interface: their steps, batches, evaluations and checkpoints."""

from typing import Any

import pytest
from alone_and_attached import record_of

STEPS = 12
BATCH = 8
MXNET = """
import mxnet as mx, numpy as np
from mxnet import autograd, gluon

mx.random.seed(0)
np.random.seed(0)
x, y = np.random.rand(96, 16).astype("f"), np.random.randint(0, 4, 96).astype("f")
samples = gluon.data.ArrayDataset(mx.nd.array(x), mx.nd.array(y))
net, loss_of = gluon.nn.Dense(4), gluon.loss.SoftmaxCrossEntropyLoss()
net.initialize(mx.init.One())
net(mx.nd.array(x[:1]))
trainer = gluon.Trainer(net.collect_params(), "adam", update_on_kvstore=False)
def train(x, y):
    with autograd.record():
        loss = loss_of(net(x), y).mean()
    loss.backward()
def weights():
    return net.collect_params()["dense0_weight"].data()
"""
GLUON = """
for x, y in gluon.data.DataLoader(samples, 8{}):
    train(x, y)
    trainer.step(8)
"""
MODULE = """
data = mx.sym.Variable("data")
out = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=4, name="dense0"), name="softmax")
given = lambda: mx.io.NDArrayIter({"data": x}, {"softmax_label": y}, 8)
module = mx.mod.Module(out)
module.fit(given(), eval_data=given(), num_epoch=1, optimizer="adam", initializer=mx.init.One())
weights = lambda: module.get_params()[0]["dense0_weight"]
"""
MXNET_LOOPS = {
    "a loader without processes": GLUON.format(""),
    "a loader with threads": GLUON.format(", num_workers=2, thread_pool=True"),
    "gradients clipped between averaging and update": """
for x, y in gluon.data.DataLoader(samples, 8):
    train(x, y)
    trainer.allreduce_grads()
    gluon.utils.clip_global_norm([weight.grad() for weight in net.collect_params().values()], 1.0)
    trainer.update(8)
""",
    "an iterator of mxnet.io": """
for batch in mx.io.NDArrayIter(x, y, 8):
    train(batch.data[0], batch.label[0])
    trainer.step(8)
""",
    "a symbolic module": MODULE,
}
PADDLE = """
import numpy as np, paddle

paddle.seed(0)
draw = np.random.default_rng(0)
class Samples(paddle.io.Dataset):
    def __init__(self, count=96):
        self.x, self.y = draw.standard_normal((count, 16)).astype("f"), draw.integers(0, 4, (count, 1))
    def __len__(self): return len(self.x)
    def __getitem__(self, index): return self.x[index], self.y[index]
net, loss_of = paddle.nn.Linear(16, 4), paddle.nn.CrossEntropyLoss()
optimizer = paddle.optimizer.Adam(0.01, parameters=net.parameters())
def loader(samples, **options):
    return paddle.io.DataLoader(samples, batch_size=8, **options)
def train(x, y):
    loss = loss_of(net(x), y)
    loss.backward()
    return loss
weights = lambda: net.weight
"""
PADDLE_LOOPS = {
    "a loop of its own": """
for x, y in loader(Samples()):
    train(x, y)
    optimizer.step()
    optimizer.clear_grad()
""",
    "a loader with processes": """
for x, y in loader(Samples(), num_workers=1):
    train(x, y)
    optimizer.step()
    optimizer.clear_grad()
""",
    "Model.fit, which minimizes": """
model = paddle.Model(net)
model.prepare(optimizer, loss_of)
model.fit(loader(Samples()), loader(Samples(40)), epochs=1, verbose=0)
""",
    "a scaler of losses": """
scaler = paddle.amp.GradScaler(init_loss_scaling=8)
for x, y in loader(Samples()):
    scaled = scaler.scale(loss_of(net(x), y))
    scaled.backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.clear_grad()
""",
}
END = "\nprint(f'{float(weights().sum().asscalar() if hasattr(weights(), \"asscalar\") else weights().sum()):.7f}')\n"


def steps_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == "step"]


def batches_of(steps: list[dict[str, Any]]) -> list[tuple[int, int, bool]]:
    """Return micro-steps and samples of each step, and whether its batch is input."""
    return [(step["micro_steps"], step["samples"], "input" in step["regions"]) for step in steps]


@pytest.mark.framework("mxnet")
@pytest.mark.parametrize("name", MXNET_LOOPS)
def test_each_batch_of_mxnet_is_a_step_with_its_samples(tmp_path, name):
    steps = steps_of(record_of(tmp_path, "mxnet", MXNET + MXNET_LOOPS[name] + END))
    assert batches_of(steps) == [(1, BATCH, True)] * STEPS


@pytest.mark.framework("mxnet")
def test_a_score_behind_an_epoch_of_a_module_is_apart(tmp_path):
    lines = record_of(tmp_path, "mxnet", MXNET + MODULE.replace("num_epoch=1", "num_epoch=2") + END)
    assert [step["number"] for step in steps_of(lines) if "apart" in step] == [STEPS - 1]


@pytest.mark.framework("paddle")
@pytest.mark.parametrize("name", PADDLE_LOOPS)
def test_each_batch_of_paddle_is_a_step_with_its_samples(tmp_path, name):
    steps = steps_of(record_of(tmp_path, "paddle", PADDLE + PADDLE_LOOPS[name] + END))
    assert batches_of(steps) == [(1, BATCH, True)] * STEPS


@pytest.mark.framework("paddle")
def test_gradients_of_paddle_that_are_added_up_are_micro_steps(tmp_path):
    loop = """
for index, (x, y) in enumerate(loader(Samples()), 1):
    train(x, y)
    if index % 3 == 0:
        optimizer.step()
        optimizer.clear_grad()
"""
    steps = steps_of(record_of(tmp_path, "paddle", PADDLE + loop + END))
    assert batches_of(steps) == [(3, 3 * BATCH, True)] * (STEPS // 3)


EVALUATIONS = {
    "without gradient": "with paddle.no_grad():",
    "in evaluation mode alone": "net.eval()\n        if True:",
}


@pytest.mark.framework("paddle")
@pytest.mark.parametrize("name", EVALUATIONS)
def test_an_evaluation_of_paddle_is_apart_and_no_step(tmp_path, name):
    loop = f"""
held = Samples(24)
for epoch in range(2):
    for index, (x, y) in enumerate(loader(Samples())):
        net.train()
        train(x, y)
        optimizer.step()
        optimizer.clear_grad()
    if epoch == 0:
        {EVALUATIONS[name]}
            for x, y in loader(held):
                loss_of(net(x), y)
"""
    steps = steps_of(record_of(tmp_path, "paddle", PADDLE + loop + END))
    assert [step["number"] for step in steps if "apart" in step] == [STEPS - 1]
    assert len(steps) == 2 * STEPS


@pytest.mark.framework("paddle")
def test_what_paddle_saves_is_a_checkpoint(tmp_path):
    loop = """
for index, (x, y) in enumerate(loader(Samples())):
    train(x, y)
    optimizer.step()
    optimizer.clear_grad()
    if index == 5: paddle.save(net.state_dict(), "net.pdparams")
"""
    steps = steps_of(record_of(tmp_path, "paddle", PADDLE + loop + END))
    assert [step["number"] for step in steps if "save" in step["regions"]] == [5]
