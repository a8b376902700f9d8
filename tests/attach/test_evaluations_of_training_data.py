"""Evaluations that read the data set of the training, between epochs of one batch and of several, in real PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
from torch.utils.data import SubsetRandomSampler
data = TensorDataset(torch.randn(96, 8), torch.randint(0, 4, (96,)))

def learn(x, y):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    optimizer.step()

def train(rows, size):
    for x, y in DataLoader(data, size, sampler=SubsetRandomSampler(rows)): learn(x, y)

def learn_at_once(count):
    pairs = []
    for x, y in DataLoader(data, 8):
        with torch.no_grad(): net(x)
        pairs.append((x, y))
        if len(pairs) == count:
            optimizer.zero_grad()
            for x, y in pairs: cross_entropy(net(x), y).backward()
            optimizer.step()
            pairs.clear()

def evaluate(rows, size):
    with torch.no_grad():
        for x, y in DataLoader(data, size, sampler=SubsetRandomSampler(rows)): net(x)
"""
)
# A loop, the samples of each step, and how many evaluations lie in steps.
LOOPS = {
    "folds of a batch": (
        "for _ in range(12):\n    train(range(64), 64)\n    evaluate(range(64, 96), 32)",
        [64] * 12,
        11,
    ),
    "folds of two batches": (
        "for _ in range(6):\n    train(range(64), 32)\n    evaluate(range(64, 96), 32)",
        [32] * 12,
        5,
    ),
    "evaluated by several batches": (
        "for _ in range(12):\n    train(range(64), 64)\n    evaluate(range(96), 16)",
        [64] * 12,
        11,
    ),
    "evaluated first": ("for _ in range(12):\n    evaluate(range(96), 96)\n    train(range(96), 96)", [96] * 12, 11),
    "none, of batches that are read at once and of which some remain": (
        "for _ in range(4): learn_at_once(5)",
        [40] * 8,
        0,
    ),
    "behind batches of which some remain": (
        "for _ in range(4):\n    learn_at_once(5)\n    evaluate(range(96), 16)",
        [40] * 8,
        3,
    ),
    "every other batch": (
        """
batches = iter(DataLoader(data, 8))
for _ in range(6):
    with torch.no_grad(): net(next(batches)[0])
    learn(*next(batches))
""",
        [8] * 6,
        1,  # until it is known that each step has one
    ),
}
LOOKS = {
    "once more": ("net(x)", 0),
    "twice": ("net(x); net(x)", 0),
    "twice at other views of it": ("net(x.view(16, 8)); net(x.view(-1, 8))", 0),
    "at the first half": ("net(x[:8])", 0),
    "by averaged weights": ("average(x)", 0),
    "in evaluation mode": ("net.eval(); net(x); net.train()", 0),
    "at as many others": ("net(others)", 35),
}
LOOPS.update(
    {
        f"behind the step, {name}": (
            f"""
average, others = torch.optim.swa_utils.AveragedModel(net), torch.randn(16, 8)
for _ in range(6):
    for x, y in DataLoader(data, 16):
        learn(x.flatten(1), y)
        with torch.no_grad(): {look}
""",
            [16] * 36,
            evaluations,
        )
        for name, (look, evaluations) in LOOKS.items()
    }
)


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    scripts = {name: script for name, (script, _, _) in LOOPS.items()}
    found = records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", LOOPS)
def test_batches_of_an_evaluation_by_the_training_data_are_no_samples_of_a_step(steps, name):
    _, samples, evaluations = LOOPS[name]
    assert [step["samples"] for step in steps[name]] == samples
    assert sum("apart" in step for step in steps[name]) == evaluations
