"""Scripts that make batches of their own of those of a loader, or leave the first ones out, in real PyTorch."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
import itertools, random
data = TensorDataset(torch.randn(480, 8), torch.randint(0, 4, (480,)))

def learn(x, y):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    optimizer.step()

def batched_anew(loader, kept, size):
    random.seed(0)  # a fork draws another
    rows = []
    for x, y in loader:
        rows += zip(x, y)
        random.shuffle(rows)
        while len(rows) >= max(kept, size):
            taken, rows = rows[:size], rows[size:]
            yield torch.stack([x for x, _ in taken]), torch.stack([y for _, y in taken])
    while rows:
        taken, rows = rows[:size], rows[size:]
        yield torch.stack([x for x, _ in taken]), torch.stack([y for _, y in taken])

def ahead(loader, count):
    batches = iter(loader)
    held = list(itertools.islice(batches, count))
    while held:
        yield held.pop(0)
        held += itertools.islice(batches, 1)
"""
)
EPOCHS = "for _ in range(2):\n    for x, y in {}:\n        learn(x, y)\n"
MADE_ANEW = {
    "larger than the loader's": (EPOCHS.format("batched_anew(DataLoader(data, 10), 0, 32)"), 32, 30),
    "smaller than the loader's": (EPOCHS.format("batched_anew(DataLoader(data, 80), 0, 32)"), 32, 30),
    "shuffled in a buffer": (EPOCHS.format("batched_anew(DataLoader(data, 24), 150, 16)"), 16, 60),
    "asked for ahead": (EPOCHS.format("ahead(DataLoader(data, 16), 5)"), 16, 60),
    "parts of the loader's": (
        "for bx, by in DataLoader(data, 96):\n    for x, y in zip(bx.split(16), by.split(16)): learn(x, y)\n",
        16,
        30,
    ),
    "several updates by one": (
        "for x, y in DataLoader(data, 16):\n    for _ in range(3): learn(x, y)\n",
        16,
        90,
    ),
}
LEFT_OUT = {
    "continue": "for i, (x, y) in enumerate(DataLoader(data, 16)):\n    if i < 7: continue\n    learn(x, y)\n",
    "islice": "for x, y in itertools.islice(DataLoader(data, 16), 7, None): learn(x, y)\n",
    "next": """
batches = iter(DataLoader(data, 16))
for _ in range(7): next(batches)
for x, y in batches: learn(x, y)
""",
    "accumulation": """
for i, (x, y) in enumerate(DataLoader(data, 8)):
    if i < 14: continue
    cross_entropy(net(x), y).backward()
    if i % 2:
        optimizer.step()
        optimizer.zero_grad()
""",
}


THREE = """
batches = iter(DataLoader(data, 16))
for first in batches:
    x, y = map(torch.cat, zip(first, next(batches), next(batches)))
    learn(x, y)
"""


TWO = """
others = itertools.cycle(DataLoader(TensorDataset(data.tensors[0][:96]), 32))
for (x, y), (u,) in zip(DataLoader(data, 16), others):
    optimizer.zero_grad()
    (cross_entropy(net(x), y) + net(u).pow(2).mean()).backward()
    optimizer.step()
"""


ZIPPED_BEGIN = """
def loader(rows, size):
    return DataLoader(TensorDataset(*(each[:rows] for each in data.tensors)), size)

def learn_both(*batches):
    learn(*map(torch.cat, zip(*batches)))

second = torch.nn.Linear(8, 4)
of_second = torch.optim.SGD(second.parameters(), 0.05)
"""
ZIPPED = {
    "the second ends first": "for pair in zip(loader(480, 16), loader(320, 32)): learn_both(*pair)",
    "the first ends first": "for pair in zip(loader(160, 16), loader(480, 32)): learn_both(*pair)",
    "two networks": """
    for one, (x, y) in zip(loader(480, 16), loader(320, 32)):
        learn(*one)
        of_second.zero_grad()
        cross_entropy(second(x), y).backward()
        of_second.step()
""",
    "of the same data": "for pair in zip(DataLoader(data, 16), DataLoader(data, 32), range(10)): learn_both(*pair[:2])",
    "three": "for some in zip(loader(480, 16), loader(480, 24), loader(80, 8)): learn_both(*some)",
    "by hand": """
    one, other = iter(loader(480, 16)), iter(loader(320, 32))
    for _ in range(10): learn_both(next(one), next(other))
""",
    "evaluated between": """
    for pair in zip(loader(480, 16), loader(320, 32)): learn_both(*pair)
    with torch.no_grad():
        for x, y in loader(480, 240): net(x)
""",
}


@pytest.mark.parametrize("name", ZIPPED)
def test_each_step_has_the_batches_of_all_loaders_and_none_that_no_step_had(steps, name):
    assert [step["samples"] for step in steps["zipped, " + name]] == [48] * 30


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """The steps of each script."""
    scripts = {**{name: script for name, (script, _, _) in MADE_ANEW.items()}, **LEFT_OUT, "three": THREE, "two": TWO}
    for name, loop in ZIPPED.items():
        scripts["zipped, " + name] = f"{ZIPPED_BEGIN}for _ in range(3):\n    {loop}"
    found = records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", MADE_ANEW)
def test_each_update_is_a_step_of_the_rows_that_go_forward(steps, name):
    _, rows, count = MADE_ANEW[name]
    assert len(steps[name]) == count
    assert {step["micro_steps"] for step in steps[name]} == {1}
    assert {step.get("rows", step.get("samples")) for step in steps[name]} == {rows}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_batches_that_a_resumed_script_leaves_out_are_no_samples_of_its_first_step(steps, name):
    assert [step["samples"] for step in steps[name]] == [16] * 23


def test_three_batches_of_one_loss_are_all_samples_of_the_first_step(steps):
    assert [step["samples"] for step in steps["three"]] == [48] * 10


def test_the_rows_of_two_batches_of_one_update_are_no_single_number(steps):
    asked = [(step.get("requests", 1), "mixed" in step.get("flags", [])) for step in steps["two"][1:]]
    assert asked == [(2, True)] * 2 + [(1, False)] * 27
    assert [step.get("rows") for step in steps["two"]] == [None] * 30


TEACHER = """
teacher = torch.nn.Linear(8, 4)
for _ in range(3):
    for x, y in DataLoader({data}, 16):
        with torch.no_grad():
            target = teacher(x)
        optimizer.zero_grad()
        (cross_entropy(net(x), y) + (net(x) - target).pow(2).mean()).backward()
        optimizer.step()
{behind}
"""
EVALUATED = """
    with torch.no_grad():
        for x, y in DataLoader(TensorDataset(*data.tensors), 240):
            net(x)
"""
TAUGHT = {
    "one data set": TEACHER.format(data="data", behind=""),
    "a data set of each epoch": TEACHER.format(data="TensorDataset(*data.tensors)", behind=""),
    "a list of each epoch": TEACHER.format(data="list(data)", behind=""),
    "evaluated between epochs": TEACHER.format(data="TensorDataset(*data.tensors)", behind=EVALUATED),
}


@pytest.mark.parametrize("name", TAUGHT)
def test_a_teachers_pass_ahead_of_the_students_is_of_the_step(taught, name):
    steps = [line for line in taught[name] if line["kind"] == "step"]

    assert [step["samples"] for step in steps] == [16] * 90
    assert all("nograd" in step["regions"] for step in steps)
    assert sum("apart" in step for step in steps) == (2 if name == "evaluated between epochs" else 0)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    return records_of(tmp_path_factory.mktemp("taught"), "pytorch", BEGIN, TAUGHT)


FEATURES = """
for _ in range(3):
    kept, loader = [], DataLoader({data}, 16)
    for number, (x, y) in enumerate(loader):
        with torch.no_grad():
            kept.append((x, y, net(x)))
        if len(kept) < {size}:
            continue
        optimizer.zero_grad()
        for at in {order}:
            one = net(kept[at][0])
            (torch.cat([one, *(each for _, _, each in kept[:at] + kept[at + 1:])]) ** 2).mean().backward()
        optimizer.step()
        kept = []
{behind}
"""
ANEW = "TensorDataset(*(each[:448] for each in data.tensors))"
FEATURES_FIRST = {
    "one data set": (FEATURES.format(data="some", size=4, order="range(4)", behind=""), 21, 64),
    "a data set of each epoch": (FEATURES.format(data=ANEW, size=4, order="range(4)", behind=""), 21, 64),
    "backwards": (FEATURES.format(data=ANEW, size=4, order="[3, 2, 1, 0]", behind=""), 21, 64),
    "two at a time": (FEATURES.format(data=ANEW, size=2, order="range(2)", behind=""), 42, 32),
    "an uneven end": (
        FEATURES.format(data=ANEW, size="(4 if number < 24 else 2)", order="range(len(kept))", behind=""),
        24,
        None,
    ),
    "evaluated between epochs": (FEATURES.format(data=ANEW, size=4, order="range(4)", behind=EVALUATED), 21, 64),
}


@pytest.fixture(scope="module")
def features_first(tmp_path_factory):
    begin = BEGIN + f"some = {ANEW}\n"
    scripts = {name: script for name, (script, _, _) in FEATURES_FIRST.items()}
    found = records_of(tmp_path_factory.mktemp("features"), "pytorch", begin, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", FEATURES_FIRST)
def test_passes_for_features_of_batches_that_are_then_trained_on_are_of_the_step(features_first, name):
    steps, (_, count, samples) = features_first[name], FEATURES_FIRST[name]
    sizes = [64] * 6 + [32] * 2 if samples is None else [samples] * (count // 3)
    assert [step["samples"] for step in steps] == sizes * 3
    assert all("nograd" in step["regions"] for step in steps)
    assert sum("apart" in step for step in steps) == (2 if name == "evaluated between epochs" else 0)


IN_HAND = {
    "one batch": "x, y = next(iter(DataLoader(data, 16)))\nfor _ in range(30): learn(x, y)",
    "a list": "batches = list(DataLoader(data, 16))\nfor x, y in batches: learn(x, y)",
    "one that changes in place": "x, y = next(iter(DataLoader(data, 16)))\nfor _ in range(30): learn(x.add_(0.01), y)",
    "no loader": "x, y = data[:16]\nfor _ in range(30): learn(x, y)",
}


@pytest.fixture(scope="module")
def in_hand(tmp_path_factory):
    found = records_of(tmp_path_factory.mktemp("in_hand"), "pytorch", BEGIN, IN_HAND)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", IN_HAND)
def test_a_batch_that_goes_forward_again_unchanged_is_flagged(in_hand, name):
    again = ["same_batch" in step.get("flags", []) for step in in_hand[name]]
    assert again == [False, *[name in ("one batch", "no loader")] * 29]
    assert {step.get("rows", step.get("samples")) for step in in_hand[name]} == {16}
