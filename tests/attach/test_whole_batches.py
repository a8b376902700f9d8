"""Data sets whose items are whole batches, and arrays of classes that are derived from torch's, in real PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
from torch.utils.data import Dataset, IterableDataset

class Clicks(Dataset):
    def __init__(self, tables=3, rows=24):
        self.tables, self.rows = tables, rows

    def __len__(self):
        return 12

    def __getitem__(self, index):
        offsets = torch.arange(self.rows).repeat(self.tables, 1)
        indices = [torch.randint(0, 9, (self.rows + 7 * table,)) for table in range(self.tables)]
        return torch.randn(self.rows, 8), offsets, indices, torch.randint(0, 4, (self.rows,))

class Stream(IterableDataset):
    def __iter__(self):
        return (Clicks()[index] for index in range(12))

class Graphs(Clicks):
    def __getitem__(self, index):
        return torch.randn(24, 8), torch.randint(0, 24, (2, 90)), torch.randn(90, 3), torch.randint(0, 4, (24,))

class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        called.append(getattr(function, "__name__", "") == "__get__")
        return super().__torch_function__(function, types, args, kwargs or {})

called = []
first = lambda items: items[0]

def crops(items):
    images, labels = map(torch.cat, zip(*items))
    return {"image": images.as_subclass(Named), "label": labels}

def learn(x, y):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    optimizer.step()
"""
)
EACH = "for x, *_, y in {}:\n    learn(x, y)\n"
SAMPLES = {
    "one for each that is asked for": (EACH.format("DataLoader(Clicks(), 1, collate_fn=first)"), 24),
    "not joined": (EACH.format("DataLoader(Clicks(), None)"), 24),
    "of a stream": (EACH.format("DataLoader(Stream(), None)"), 24),
    "of two tables": (EACH.format("DataLoader(Clicks(2), 1, collate_fn=first)"), 24),
    "accumulated": (
        """
for i, (x, *_, y) in enumerate(DataLoader(Clicks(), 1, collate_fn=first)):
    cross_entropy(net(x), y).backward()
    if i % 2:
        optimizer.step()
        optimizer.zero_grad()
""",
        48,
    ),
    "lists of images": (
        """
listed = lambda items: {"image": [x for x, _ in items], "label": [y for _, y in items]}
pictures = [(torch.randn(3, 8), torch.randint(0, 4, ())) for _ in range(24)]
for batch in DataLoader(pictures, 4, collate_fn=listed):
    learn(torch.stack(batch["image"])[:, 0], torch.stack(batch["label"]))
""",
        4,
    ),
    "a graph": (EACH.format("DataLoader(Graphs(), 1, collate_fn=first)"), 1),
}
TEXTS = """
language = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 64))
net = torch.nn.ModuleList([net, language])
optimizer = torch.optim.SGD(net.parameters(), 0.05)
texts = torch.randint(0, 64, (24, 33))

def follow(x, y, updates=True):
    cross_entropy(language(x).transpose(1, 2), y).backward()
    if updates:
        optimizer.step()
        optimizer.zero_grad()
"""
TOKENS = {
    "blocks of one token more": (
        "for x, in DataLoader(TensorDataset(texts), 4): follow(x[:, :-1], x[:, 1:])",
        4 * 32,
    ),
    "named": (
        """
for batch in DataLoader([{"input_ids": text} for text in texts], 4):
    follow(batch["input_ids"][:, :-1], batch["input_ids"][:, 1:])
""",
        4 * 32,
    ),
    "gathered": (
        """
for i, x in enumerate(DataLoader(texts, 4)):
    follow(x[:, :-1].contiguous(), x[:, 1:], i % 2 == 1)
""",
        8 * 32,
    ),
    "all of them": ("for x, in DataLoader(TensorDataset(texts), 4): follow(x, x.roll(-1, 1))", 4 * 33),
}
DERIVED = """
items = [(torch.randn(4, 8), torch.randint(0, 4, (4,))) for _ in range(24)]
for batch in DataLoader(items, 2, collate_fn=crops):
    learn(batch["image"].as_subclass(torch.Tensor), batch["label"])
print(sum(called))
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    scripts = {**{name: script for name, (script, _) in SAMPLES.items()}, "derived": DERIVED}
    scripts.update({name: TEXTS + script for name, (script, _) in TOKENS.items()})
    found = records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_an_item_are_the_rows_of_its_input_and_its_labels_that_go_forward(steps, name):
    assert {step["samples"] for step in steps[name]} == {SAMPLES[name][1]}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_are_those_that_go_forward_where_the_last_of_each_row_is_only_learnt(steps, name):
    assert {step["tokens"] for step in steps[name]} == {TOKENS[name][1]}


def test_arrays_of_a_derived_class_are_read_and_none_of_its_functions_are_called(steps):
    assert {(step["samples"], step["asked"]) for step in steps["derived"]} == {(8, 2)}
