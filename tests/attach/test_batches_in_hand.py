"""Scripts that fetch a batch once and train on it again and again, by optimizers that take turns, in real PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
nets = [torch.nn.Linear(8, 4) for _ in range(3)]
optimizers = [torch.optim.SGD(each.parameters(), 0.05) for each in nets]
data = TensorDataset(torch.randn(96, 8), torch.randint(0, 4, (96,)))

def learn(which, rows=slice(32)):
    x, y = held[0][rows], held[1][rows]
    optimizers[which].zero_grad()
    cross_entropy(nets[which](x), y).backward()
    optimizers[which].step()
"""
)
HELD = "held = next(iter(DataLoader(data, 32)))\n"
# How many updates each step has, and the rows that go forward for it.
IN_HAND = {
    "one optimizer": ("for _ in range(20): learn(0)", [1] * 20),
    "in parts": ("for i in range(20): learn(0, slice(i % 4 * 8, i % 4 * 8 + 8))", [1] * 20),
    "one layer after the other": (
        "for which in range(3):\n    for _ in range(20): learn(which)",
        [1] * 19 + [3] + [1] * 17 + [3] + [1] * 18,
    ),
    "two in turn": ("for _ in range(20):\n    learn(0)\n    learn(1)", [4] + [2] * 18),
    "three in turn": ("for _ in range(20):\n    for which in range(3): learn(which)", [6] + [3] * 18),
    "two updates of one for each of another": (
        "for _ in range(20):\n    learn(0)\n    learn(0)\n    learn(1)",
        None,
    ),
}
"""Where it is not settled at once what a round is, no step has more than a few updates."""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    scripts = {name: HELD + script for name, (script, _) in IN_HAND.items()}
    found = records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", IN_HAND)
def test_updates_by_a_batch_in_hand_are_divided_by_the_rounds_of_their_optimizers(steps, name):
    updates, expected = [len(step["optimizers"]) for step in steps[name]], IN_HAND[name][1]
    assert (updates == expected) if expected else (max(updates) <= 6 and sum(updates) == 60), updates


def test_the_rows_of_a_batch_in_hand_are_on_record(steps):
    assert {step.get("rows", step.get("samples")) for step in steps["one optimizer"]} == {32}
    assert [step.get("rows") for step in steps["in parts"]] == [8] * 20
