"""Losses of several batches that are added, and passes without gradient of what is trained on next, in real PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
def endless(rows, size):
    loader = DataLoader(TensorDataset(torch.randn(rows, 8), torch.randint(0, 4, (rows,))), size)
    while True:
        yield from loader

def loss_of(batch):
    return cross_entropy(net(batch[0]), batch[1])

def guessed(batch):
    with torch.no_grad():
        guess = net(batch[0]).argmax(1)
    return cross_entropy(net(batch[0]), guess)

def learn(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

first, second, third = endless(320, 32), endless(640, 16), endless(640, 8)
table = torch.randn(1280, 8)
"""
)
ADDED = {
    "guessed labels from step 20 on": (
        "for i in range(60): learn(loss_of(next(first)) + (guessed(next(second)) if i >= 20 else 0))",
        [32] * 20 + [48] * 40,
    ),
    "old samples from step 20 on": (
        "for i in range(60): learn(loss_of(next(first)) + (loss_of(next(second)) if i >= 20 else 0))",
        [32] * 20 + [48] * 40,
    ),
    "guessed labels in every third step": (
        "for i in range(60): learn(loss_of(next(first)) + (guessed(next(second)) if i % 3 == 2 else 0))",
        [32, 32, 48] * 20,
    ),
    "a third loader from step 40 on": (
        """
for i in range(60):
    losses = [loss_of(next(first))]
    losses += [loss_of(next(second))] if i >= 20 else []
    losses += [loss_of(next(third))] if i >= 40 else []
    learn(sum(losses))
""",
        [32] * 20 + [48] * 20 + [56] * 20,
    ),
}
LOSS = "cross_entropy(net(x), torch.zeros(len(x), dtype=torch.long), reduction='none')"
AHEAD = {
    "a weight of each sample": f"""
for i in range(40):
    x = table[32 * i : 32 * i + 32]
    with torch.no_grad(): weight = {LOSS}
    learn((weight * {LOSS}).mean())
""",
    "a teacher": """
import copy
teacher = copy.deepcopy(net)
for i in range(40):
    x = table[32 * i : 32 * i + 32]
    with torch.no_grad(): aim = teacher(x)
    learn((net(x) - aim).pow(2).mean())
""",
    "some batches left out before": f"""
for i in range(50):
    x = table[25 * i : 25 * i + 25]
    if i % 5 == 2: continue
    with torch.no_grad(): weight = {LOSS}
    learn((weight * {LOSS}).mean())
""",
    "two passes": """
for i in range(40):
    x = table[32 * i : 32 * i + 32]
    with torch.no_grad(): aim = net(x) + net(x)
    learn((net(x) - aim).pow(2).mean())
""",
}
ANEW = {
    "points of two sets": "learn(net(torch.randn(64, 8)).pow(2).mean() + net(torch.randn(16, 8)).pow(2).mean())",
    "points of three sets": "learn(sum(net(torch.randn(n, 8)).pow(2).mean() for n in (4, 8, 9)))",
    "differing points": "learn(net(torch.randn(9 + i % 5, 8)).pow(2).mean() + net(torch.randn(40, 8)).pow(2).mean())",
    "an inner loop": """
    weights = tuple(net.parameters())
    slopes = torch.autograd.grad(net(torch.randn(5, 8)).pow(2).mean(), weights, create_graph=True)
    names = [name for name, _ in net.named_parameters()]
    inner = {name: each - 0.1 * slope for name, each, slope in zip(names, weights, slopes)}
    learn(torch.func.functional_call(net, inner, (torch.randn(15, 8),)).pow(2).mean())""",
}
EVALUATED = """
x = table[:32]
for i in range(40):
    if i % 10 == 9:
        with torch.no_grad(): [net(table[64 * j : 64 * j + 64]) for j in range(20)]
    x = table[32 * i : 32 * i + 32]
    with torch.no_grad(): aim = net(x)
    learn((net(x) - aim).pow(2).mean())
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    scripts = {name: script for name, (script, _) in ADDED.items()} | AHEAD | {"evaluated": EVALUATED}
    scripts |= {name: f"for i in range(30):\n    {script.strip()}" for name, script in ANEW.items()}
    found = records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", ADDED)
def test_a_loss_that_is_added_later_is_of_samples_and_no_evaluation(steps, name):
    wrong = [i for i, (step, n) in enumerate(zip(steps[name], ADDED[name][1], strict=True)) if step["samples"] != n]
    assert len(wrong) <= 1, wrong  # the first step of a loader that none knows yet
    assert sum("apart" in step for step in steps[name]) <= 1


@pytest.mark.parametrize("name", AHEAD)
def test_a_pass_without_gradient_of_what_is_trained_on_next_is_the_steps_own(steps, name):
    assert len(steps[name]) == 40
    assert [step for step in steps[name] if "apart" in step] == []
    assert sum("nograd" in step["regions"] for step in steps[name]) >= 39


def test_an_evaluation_before_such_a_pass_stays_apart(steps):
    apart = [step["number"] for step in steps["evaluated"] if "apart" in step]
    assert len(apart) == 4
    assert all(each % 10 in (8, 9) for each in apart)
    assert all("nograd" in step["regions"] for step in steps["evaluated"][1:])


@pytest.mark.parametrize("name", ANEW)
def test_batches_of_differing_rows_made_anew_are_not_one_batch(steps, name):
    assert len(steps[name]) == 30
    assert [step["number"] for step in steps[name] if "same_batch" in step["flags"]] == []
