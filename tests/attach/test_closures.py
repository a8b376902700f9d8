"""Optimizers that call a closure for the loss, as Lightning's trainer does: what precedes its passes is no update."""

import statistics

import pytest
from alone_and_attached import record_of

pytestmark = pytest.mark.framework("pytorch")
MS = 1_000_000
SLEPT = 15 * MS
SCRIPT = """
import time
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 8)), batch_size=8)

{optimizer}

def closure_of(x):
    def closure():
        optimizer.zero_grad()
        {ahead}
        found = net(x)
        {between}
        loss = found.pow(2).mean()
        loss.backward()
        return loss
    return closure

for (x,) in loader:
    loss = optimizer.step(closure_of(x))
print(float(loss))
"""
SLEEP = "time.sleep(0.015)"
SGD = "optimizer = torch.optim.SGD(net.parameters(), 0.01)"
LBFGS = "optimizer = torch.optim.LBFGS(net.parameters(), 0.1, max_iter=2)"
SCHEDULED = f"{SGD}\nscheduled = torch.optim.lr_scheduler.StepLR(optimizer, 5)"
BY_ANOTHER = """
class Outer(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {{}})
        self.inner = inner

    def step(self, closure=None):
        time.sleep(0.015)
        loss = closure()
        self.inner.step()
        return loss

optimizer = Outer(torch.optim.SGD(net.parameters(), 0.01))
""".replace("{{}}", "{}")


def steps_of(folder, optimizer, ahead="pass", between="pass"):
    lines = record_of(folder, "pytorch", SCRIPT.format(optimizer=optimizer, ahead=ahead, between=between))
    return [line for line in lines if line["kind"] == "step"][2:]


def usual(steps, table, name):
    return statistics.median(step[table].get(name, 0) for step in steps)


def shortest(steps, region):
    """Return the least time in a region: a busy machine makes a step longer, and none shorter than what it does."""
    return min(step["regions"].get(region, 0) for step in steps)


@pytest.mark.parametrize("optimizer", [SGD, LBFGS, SCHEDULED], ids=["SGD", "LBFGS", "scheduled"])
def test_code_ahead_of_the_forward_in_a_closure_is_no_update(tmp_path, optimizer):
    steps = steps_of(tmp_path, optimizer, ahead=SLEEP)
    assert usual(steps, "gaps", "input>forward") >= SLEPT
    again = 1 if optimizer is LBFGS else 0  # behind its first loss, L-BFGS may have worked when it asks again
    assert shortest(steps, "update") < (again + 0.5) * SLEPT


@pytest.mark.parametrize("optimizer", [SGD, LBFGS, BY_ANOTHER], ids=["SGD", "LBFGS", "outer"])
def test_code_between_the_passes_of_a_closure_is_no_update(tmp_path, optimizer):
    steps = steps_of(tmp_path, optimizer, between=SLEEP)
    assert usual(steps, "gaps", "forward>backward") >= SLEPT
    ahead = 1 if optimizer is BY_ANOTHER else 0
    assert shortest(steps, "update") < (ahead + 0.5) * SLEPT


def test_what_an_optimizer_does_ahead_of_its_closure_stays_an_update(tmp_path):
    assert usual(steps_of(tmp_path, BY_ANOTHER), "regions", "update") >= SLEPT


@pytest.mark.parametrize("optimizer", [SGD, LBFGS, BY_ANOTHER], ids=["SGD", "LBFGS", "outer"])
def test_a_step_is_the_sum_of_what_it_is_divided_into(tmp_path, optimizer):
    for step in steps_of(tmp_path, optimizer, ahead=SLEEP, between=SLEEP):
        parts = sum(step["regions"].values()) + sum(step["gaps"].values())
        assert parts == step["duration_ns"]
