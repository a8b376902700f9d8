"""What lies before the first batch, and evaluations while gradients wait for those of the next epoch, in PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
data = TensorDataset(torch.randn(80, 8), torch.randint(0, 4, (80,)))
held = DataLoader(TensorDataset(torch.randn(24, 8)), 8)
loader, further = DataLoader(data, 16), DataLoader(TensorDataset(torch.randn(40, 8)), 8)

def evaluate(batches=held):
    net.eval()
    with torch.no_grad():
        for x, *_ in batches: net(x)
    net.train()

def train(epochs=6, each=2, after=evaluate):
    number = 0
    for _ in range(epochs):
        for x, y in loader:
            cross_entropy(net(x), y).backward()
            number += 1
            if number % each == 0:
                optimizer.step()
                optimizer.zero_grad()
        after()

one, other = net[0], net[2]
"""
)
# A loop, how many steps it has, and which of them lie beside an evaluation.
EVALUATED = {
    "behind each epoch": ("train()", 15, [2, 4, 7, 9, 12]),
    "behind each epoch, in three": ("train(each=3)", 10, [1, 3, 4, 6, 8]),
    "by two loaders": ("train(after=lambda: (evaluate(), evaluate(further)))", 15, [2, 4, 7, 9, 12]),
    "by the training's own data": (
        "train(after=lambda: (evaluate(), evaluate(DataLoader(data, 8))))",
        15,
        [2, 4, 7, 9, 12],
    ),
    "by the training's own loader": ("train(after=lambda: evaluate(loader))", 15, [2, 4, 7, 9, 12]),
    "none": ("train(after=lambda: None)", 15, []),
}
TRIED = {
    "for its shape": "width = net(torch.zeros(1, 8)).shape[-1]",
    "several times": "strides = [net(torch.zeros(rows, 8)).shape[0] for rows in (1, 2, 4)]",
    "layer by layer": "values = one(torch.zeros(1, 8))\nvalues = other(torch.relu(values)).shape",
    "with a backward pass": "net(torch.zeros(1, 8)).sum().backward()\noptimizer.zero_grad()",
    "in parts that were kept": "first = one(torch.zeros(1, 8)).detach()\nother(torch.relu(first))",
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    scripts = {
        **{name: script for name, (script, *_) in EVALUATED.items()},
        **{name: script + "\ntrain(2, 1, lambda: None)" for name, script in TRIED.items()},
    }
    found = records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", EVALUATED)
def test_an_evaluation_behind_an_epoch_whose_last_gradients_wait_is_apart(steps, name):
    script, count, beside = EVALUATED[name]
    each = 3 if "each=3" in script else 2
    assert [step["number"] for step in steps[name] if "apart" in step] == beside
    assert len(steps[name]) == count
    assert [(step["samples"], step["micro_steps"]) for step in steps[name]] == [(16 * each, each)] * count


@pytest.mark.parametrize("name", TRIED)
def test_a_forward_that_is_only_tried_out_begins_no_first_step(steps, name):
    first, *others = steps[name]
    assert len(others) == 9
    assert first["gaps"].keys() <= {*others[0]["gaps"], "input>input"}
    assert (first["micro_steps"], first["samples"]) == (1, 16)
