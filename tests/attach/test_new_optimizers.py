"""Optimizers that a script makes anew: they are one, and those that live side by side are several."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = f"""{NETWORK}
other = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))

def passed(network):
    network.zero_grad()
    cross_entropy(network(x), y).backward()
"""
LOOPS = {
    "one": """
for _ in range(12):
    optimizer = torch.optim.Adam(net.parameters(), 0.01); passed(net); optimizer.step()
""",
    "two at once": """
for _ in range(12):
    optimizer = torch.optim.SGD(net.parameters(), 0.01); passed(net); optimizer.step()
    further = torch.optim.SGD(other.parameters(), 0.01); passed(other); further.step()
""",
    "inside of another": """
import copy
for _ in range(12):
    inner = copy.deepcopy(net)
    further = torch.optim.SGD(inner.parameters(), 0.01); passed(inner); further.step(); passed(net); optimizer.step()
""",
    "kept": """
further = torch.optim.SGD(other.parameters(), 0.01)
for _ in range(12):
    passed(net); optimizer.step(); passed(other); further.step()
""",
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return records_of(tmp_path_factory.mktemp("optimizers"), "pytorch", BEGIN, LOOPS)


@pytest.mark.parametrize(("name", "count"), [("one", 1), ("two at once", 2), ("inside of another", 2), ("kept", 2)])
def test_there_are_as_many_optimizers_as_live_at_once(records, name, count):
    made = [number for line in records[name] if line["kind"] == "step" for number in line["optimizers"]]
    assert len(made) == 12 * count
    assert set(made) == set(range(count))


@pytest.mark.parametrize(
    ("name", "said"), [("one", True), ("two at once", True), ("inside of another", True), ("kept", False)]
)
def test_it_is_said_of_those_that_are_made_anew(records, name, said):
    notes = [line["text"] for line in records[name] if line["kind"] == "note"]
    assert any("a new optimizer" in note for note in notes) is said
