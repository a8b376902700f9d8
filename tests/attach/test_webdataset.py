"""Batches of the real WebDataset: samples of a step are those that the script trains on, whoever made the batches."""

import importlib.util
import sys
import sysconfig
from pathlib import Path

import pytest
from alone_and_attached import NETWORK, records_of

sys.path.insert(0, str(Path(__file__).parents[1] / "attached"))
from stored_processes import found_in, write

pytestmark = [
    pytest.mark.framework("pytorch"),
    pytest.mark.skipif(
        importlib.util.find_spec("webdataset") is None, reason="missing webdataset: pip install webdataset"
    ),
]
LIBRARY = sysconfig.get_path("purelib")
BEGIN = (
    NETWORK + f"""
import io, sys, tarfile, time
sys.path.append({LIBRARY!r})  # behind the framework's own packages
import numpy
import webdataset as wds

if not __import__("os").path.exists("1.tar"):
    for shard in range(2):
        with tarfile.open(f"{{shard}}.tar", "w") as archive:
            for index in range(240):
                array = io.BytesIO()
                numpy.save(array, numpy.full(8, index, numpy.float32))
                for ending, data in (("npy", array.getvalue()), ("cls", b"%d" % (index % 4))):
                    entry = tarfile.TarInfo(f"{{shard}}-{{index:03d}}.{{ending}}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
"""
    """
def samples():
    return wds.WebDataset(["0.tar", "1.tar"], shardshuffle=False, empty_check=False).decode()

def pairs():
    return samples().to_tuple("npy", "cls")

def learn(x, y):
    optimizer.zero_grad()
    cross_entropy(net(torch.as_tensor(x)), torch.as_tensor(y)).backward()
    optimizer.step()

def train(loader, epochs=2):
    for _ in range(epochs):
        for x, y in loader:
            learn(x, y)
"""
)
FORMS = {
    "batched before the loader": ("train(DataLoader(pairs().batched(16), batch_size=None))", 16, 60),
    "batched and shuffled before the loader": (
        "train(wds.WebLoader(pairs().shuffle(50, seed=0).batched(16), batch_size=None, num_workers=2))",
        16,
        60,
    ),
    "batched by the loader": ("train(wds.WebLoader(pairs(), batch_size=16, num_workers=0))", 16, 60),
    "batched anew, larger": (
        (
            "train(wds.WebLoader(pairs().batched(10), batch_size=None, num_workers=1)"
            ".unbatched().shuffle(50, seed=0).batched(24))"
        ),
        24,
        40,
    ),
    "batched anew, smaller": (
        "train(wds.WebLoader(pairs().batched(48), batch_size=None).unbatched().shuffle(100, seed=0).batched(16))",
        16,
        60,
    ),
    "batched anew as before": (
        "train(wds.WebLoader(pairs().batched(16), batch_size=None).unbatched().shuffle(100, seed=0).batched(16))",
        16,
        60,
    ),
    "an epoch of so many": (
        "train(wds.WebLoader(pairs().repeat().batched(16), batch_size=None).with_epoch(20))",
        16,
        40,
    ),
    "without a loader": ("train(pairs().batched(16))", 16, 60),
    "a pipeline of stages": (
        (
            "train(wds.DataPipeline(wds.SimpleShardList(['0.tar', '1.tar']), wds.tarfile_to_samples(), wds.decode(),"
            " wds.to_tuple('npy', 'cls'), wds.batched(16)))"
        ),
        16,
        60,
    ),
    "named": (
        "for batch in wds.WebLoader(samples().batched(16), batch_size=None): learn(batch['npy'], batch['cls'])",
        16,
        30,
    ),
    "lists of samples": (
        (
            "for rows in wds.WebLoader(pairs().batched(16, collation_fn=None), batch_size=None):\n"
            "    learn(numpy.stack([x for x, _ in rows]), [y for _, y in rows])"
        ),
        16,
        30,
    ),
    "one sample at a time": (
        "for x, y in wds.WebLoader(pairs(), batch_size=None): learn(x[None], [y])",
        1,
        480,
    ),
    "two batches an update": (
        (
            "for number, (x, y) in enumerate(wds.WebLoader(pairs().batched(16), batch_size=None)):\n"
            "    cross_entropy(net(torch.as_tensor(x)), torch.as_tensor(y)).backward()\n"
            "    if number % 2:\n"
            "        optimizer.step()\n"
            "        optimizer.zero_grad()\n"
        ),
        32,
        15,
    ),
}
APART = """
import gc

gc.disable()  # a collection is a part of its own

def slow(pair):
    time.sleep(0.001)
    return pair

held = wds.WebLoader(pairs().slice(64).batched(16), batch_size=None).unbatched().batched(32)
for epoch in range(4):
    train(wds.WebLoader(pairs().map(slow).batched(16), batch_size=None).unbatched().batched(32), 1)
    net.eval()
    with torch.no_grad():
        for x, y in held:
            net(torch.as_tensor(x))
    net.train()
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The record of each script."""
    scripts = {**{name: script for name, (script, _, _) in FORMS.items()}, "evaluated": APART}
    return records_of(tmp_path_factory.mktemp("steps"), "pytorch", BEGIN, scripts)


def steps_of(lines, name):
    return [line for line in lines[name] if line["kind"] == "step"]


@pytest.mark.parametrize("name", FORMS)
def test_samples_of_a_step_are_those_that_are_trained_on(lines, tmp_path, name):
    _, size, count = FORMS[name]
    assert len(steps_of(lines, name)) == count
    assert found_in(write(tmp_path, lines[name])).throughput.samples.per_step == size


def test_time_in_which_batches_are_made_anew_is_input_wait(lines):
    waits = [step["regions"]["input"] / 1e9 for step in steps_of(lines, "evaluated") if "apart" not in step]
    assert min(waits) > 0.015  # of 16 samples at least: as many are made ahead of the last step


def test_batches_of_an_evaluation_are_none_of_the_training(lines):
    steps = steps_of(lines, "evaluated")
    assert [step["samples"] for step in steps] == [32] * 60
    assert sum("apart" in step for step in steps) == 3
