"""Gradients of inputs between steps (attributions, adversarial evaluations), in real PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
WAIT_S = 0.02
BEGIN = (
    NETWORK
    + f"""
import time
x, y = torch.randn(96, 8), torch.randint(0, 4, (96,))
held = torch.randn(24, 8)

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, values): return values.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep({WAIT_S})
        return gradient

def gradients_of(values):
    values = values.clone().requires_grad_()
    return torch.autograd.grad(net(Slow.apply(values))[:, 0].sum(), values)[0]

def attribute(values): gradients_of(values)

def attribute_along_a_path(values):
    for share in (0.5, 1.0): gradients_of(share * values)

def attack(values):
    for _ in range(2): values = values + 0.1 * gradients_of(values).sign()
    with torch.no_grad(): net(values)

def train(look):
    for number, (inputs, labels) in enumerate(DataLoader(TensorDataset(x, y), 8)):
        optimizer.zero_grad()
        cross_entropy(net(inputs), labels).backward()
        optimizer.step()
        if number % 3 == 2:
            net.eval()
            look()
            net.train()
"""
)
LOOKS = {
    "at held values": ("train(lambda: attribute(held))", 1),
    "along a path": ("train(lambda: attribute_along_a_path(held))", 2),
    "adversarial": ("train(lambda: attack(held))", 2),
    "of a loader": ("train(lambda: [attribute(each) for each, in DataLoader(TensorDataset(held), 12)])", 2),
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    scripts = {name: script for name, (script, _) in LOOKS.items()}
    found = records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", LOOKS)
def test_gradients_of_inputs_between_steps_are_no_part_of_steps(steps, name):
    lasting = LOOKS[name][1] * WAIT_S * 1e9
    beside = [step for step in steps[name] if "apart" in step]
    assert [step["samples"] for step in steps[name]] == [8] * 12
    assert len(beside) == 3  # the last is behind the last step
    assert all(step["apart"]["end_ns"] - step["apart"]["begin_ns"] >= lasting for step in beside)
