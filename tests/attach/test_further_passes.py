"""Several backward passes of one forward, as of two losses, in real PyTorch: one micro-step."""

import pytest
from alone_and_attached import records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = """
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

class Towers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.one(x), self.other(x)

net = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), torch.nn.Linear(8, 4), Towers()])
encoder, head, second, towers = net
loader = DataLoader(TensorDataset(torch.randn(192, 8), torch.randint(0, 4, (192,))), 16)

def both(x, y):
    out = head(x)
    cross_entropy(out, y).backward(retain_graph=True)
    out.pow(2).mean().backward()

def of_heads(x, y):
    found = encoder(x)
    losses = cross_entropy(head(found), y), second(found).pow(2).mean()
    losses[0].backward(retain_graph=True)
    losses[1].backward()

def of_towers(x, y):
    one, other = towers(x)
    cross_entropy(one, y).backward()
    cross_entropy(other, y).backward()

def of_three(x, y):
    out = head(x)
    for power in (1, 2, 3):
        out.pow(power).mean().backward(retain_graph=power < 3)

def plain(x, y):
    cross_entropy(head(x), y).backward(retain_graph=True)
"""
TRAINED = """
optimizer = torch.optim.SGD(net.parameters(), 0.05)
for i, (x, y) in enumerate(loader):
    {learn}(x, y)
    if i % {every} == {every} - 1:
        optimizer.step()
        optimizer.zero_grad()
"""
BY_HAND = """
for x, y in loader:
    both(x, y)
    with torch.no_grad():
        for each in head.parameters():
            each -= 0.05 * each.grad
            each.grad = None
"""
LISTED = """
optimizer = torch.optim.SGD(net.parameters(), 0.05)
losses = []
for x, y in loader:
    losses.append(cross_entropy(head(x), y))
    if len(losses) == 4:
        for loss in losses:
            loss.backward({how})
        optimizer.step()
        optimizer.zero_grad()
        losses = []
"""
PASSES = {
    "two losses": (TRAINED.format(learn="both", every=1), 1, 1),
    "heads of an encoder": (TRAINED.format(learn="of_heads", every=1), 1, 1),
    "outputs that share nothing": (TRAINED.format(learn="of_towers", every=1), 1, 1),
    "three losses": (TRAINED.format(learn="of_three", every=1), 1, 2),
    "updates by hand": (BY_HAND, 1, 1),
    "accumulation of two losses": (TRAINED.format(learn="both", every=2), 2, 2),
    "accumulation": (TRAINED.format(learn="plain", every=3), 3, 0),
    "losses of a list": (LISTED.format(how=""), 4, 0),
    "losses of a list with their graphs": (LISTED.format(how="retain_graph=True"), 4, 0),
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """The steps of each script."""
    scripts = {name: script for name, (script, _, _) in PASSES.items()}
    found = records_of(tmp_path_factory.mktemp("further"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", PASSES)
def test_a_further_backward_pass_of_a_forward_is_no_micro_step(steps, name):
    _, micro_steps, further = PASSES[name]
    assert {(step["micro_steps"], step.get("further", 0)) for step in steps[name]} == {(micro_steps, further)}
    assert {step["samples"] for step in steps[name]} == {192 // len(steps[name])}


FITTED = """
weight = torch.zeros(8, requires_grad=True)
inputs, wanted = torch.randn(64, 8), torch.randn(64)
for trial in range(5):
    for _ in range(12):
        ((inputs @ weight - wanted) ** 2).mean().backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
            weight.grad = None
    point = torch.randn(1, 8, requires_grad=True)
    for _ in range(6):
        point = (point + 0.1 * torch.autograd.grad(head(point).sum(), point)[0]).detach().requires_grad_()
print(weight.sum().item())
"""


def test_fits_whose_forward_no_module_makes_are_steps_behind_a_search_by_gradients(tmp_path):
    """As of Gaussian processes between acquisitions: those that are searched with are no forward of a fit."""
    lines = records_of(tmp_path, "pytorch", BEGIN, {"fitted": FITTED})["fitted"]
    steps = [line for line in lines if line["kind"] == "step"]
    assert {line["micro_steps"] for line in steps} == {1}
    assert len(steps) == 60
