"""Loaders of data sets that are gone, whose addresses others have taken since, in real PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
data, class_of = torch.randn(320, 8), torch.randint(0, 4, (320,))

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        return data[index], class_of[index]

class Compared(Samples):
    def __eq__(self, other):
        raise SystemExit("code of the user's was called")

rows, held = list(zip(data, class_of)), []

def filled(samples):
    if isinstance(samples, list):
        samples.extend(rows)
    elif isinstance(samples, dict):
        samples.update(enumerate(rows))
    return samples

def made_at(kind, address):
    # Return one at an address that is free; what is tried before it is kept from being tried again.
    held.clear()
    for _ in range(2000):
        held.append(kind())
        if id(held[-1]) == address:
            return filled(held.pop())
    raise SystemExit("the address was not used again")

def learn(x, y):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    optimizer.step()

def train(samples, size=16):
    for x, y in DataLoader(samples, size):
        learn(x, y)
    return id(samples)

def evaluate(samples):
    for x, y in DataLoader(samples, 40):
        cross_entropy(net(x), y).item()  # with gradients, in training mode
"""
)
EPOCHS = """
for epoch in range(3):
    address = train(filled({kind}()))
    evaluate(made_at({kind}, address))
"""
KINDS = {
    "data set": "Samples",
    "data set that is compared by code of its own": "Compared",
    "list": "(lambda: [])",
    "dictionary": "(lambda: {})",
}
SCRIPTS = {name: EPOCHS.format(kind=kind) for name, kind in KINDS.items()}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return records_of(tmp_path_factory.mktemp("addresses"), "pytorch", BEGIN, SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_evaluation_at_the_address_of_what_was_trained_on_is_no_training(records, name):
    steps = [line for line in records[name] if line["kind"] == "step"]

    assert [step["samples"] for step in steps] == [16] * 60
    assert [step["micro_steps"] for step in steps] == [1] * 60
