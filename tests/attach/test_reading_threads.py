"""Threads of a script that read its loaders, for training and for evaluations, in real PyTorch."""

from dataclasses import replace

import pytest
from alone_and_attached import NETWORK, records_of

from steptime.attached.summary import attached_run
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader, read_attached

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
import concurrent.futures, queue, threading
data = TensorDataset(torch.randn(480, 8), torch.randint(0, 4, (480,)))

class Ahead:
    # Has a thread read a loader into a queue.
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        batches = queue.Queue(3)
        def read():
            for batch in self.loader:
                batches.put(batch)
            batches.put(None)
        threading.Thread(target=read, daemon=True).start()
        while (batch := batches.get()) is not None:
            yield batch

class InPool:
    # Has a pool of threads read one batch while another is trained on.
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        batches = iter(self.loader)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            coming = pool.submit(next, batches, None)
            while (batch := coming.result()) is not None:
                coming = pool.submit(next, batches, None)
                yield batch

def learn(x, y):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    optimizer.step()

@torch.no_grad()
def evaluate(loader):
    for x, _ in loader:
        net(x)
"""
)
EPOCHS = """
for _ in range(3):
    for x, y in {training}:
        {learn}
    evaluate({evaluated})
"""
TRAINING, EVALUATED = "Ahead(DataLoader(data, 16))", "Ahead(DataLoader(data, 60))"


def epochs(training=TRAINING, learn="learn(x, y)", evaluated=EVALUATED):
    return EPOCHS.format(training=training, learn=learn, evaluated=evaluated)


KNOWN = {
    "both by a thread": (epochs(), 16, 90),
    "both of one size": (epochs(evaluated="Ahead(DataLoader(TensorDataset(*data.tensors), 16))"), 16, 90),
    "evaluated by the thread that trains": (epochs(evaluated="DataLoader(data, 60)"), 16, 90),
    "one batch evaluated": (epochs(evaluated="DataLoader(data, 480)"), 16, 90),
    "only evaluated by a thread": (epochs(training="DataLoader(data, 16)"), 16, 90),
    "a pool": (epochs(training="InPool(DataLoader(data, 16))", evaluated="InPool(DataLoader(data, 60))"), 16, 90),
    "arrays that are copied": (epochs(learn="learn(x.double().float(), y)"), 16, 90),
    "several updates by one": (epochs(learn="learn(x, y); learn(x, y)"), 16, 180),
    "accumulation": (
        epochs(
            training="enumerate(Ahead(DataLoader(data, 8)))",
            learn="""
            i, (x, y) = x, y
            cross_entropy(net(x), y).backward()
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
""",
        ),
        16,
        90,
    ),
}
UNKNOWN = {
    "functions": """
for x, y in Ahead(DataLoader(data, 16)):
    optimizer.zero_grad()
    cross_entropy(torch.nn.functional.linear(torch.relu(net[0].forward(x)), net[2].weight), y).backward()
    optimizer.step()
""",
    "rows that are no samples": epochs(learn="learn(torch.cat((x, x)), torch.cat((y, y)))"),
    "a second pass of what is generated": epochs(
        learn="learn(x, y); cross_entropy(net(x + 0.1), y).backward(); optimizer.step()"
    ),
    "training by two threads' batches and the loader's": """
for (x, y), (u, _) in zip(Ahead(DataLoader(data, 16)), DataLoader(data, 32)):
    optimizer.zero_grad()
    (cross_entropy(net(x), y) + net(u).pow(2).mean()).backward()
    optimizer.step()
""",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of each script the lines of its steps, and its throughput."""
    folder = tmp_path_factory.mktemp("threads")
    scripts = {**{name: script for name, (script, _, _) in KNOWN.items()}, **UNKNOWN}
    found = records_of(folder, "pytorch", BEGIN, scripts)
    header = AttachedHeader(command=["python"], started_at="", boot="", begin_ns=0, wall_minus_monotonic_ns=0)
    read = read_attached(PlainFolder(folder), folder / "record")
    processes = sorted(read.processes, key=lambda process: process.process.begin_ns)
    return {
        name: (
            [line for line in lines if line["kind"] == "step"],
            attached_run(header, replace(read, processes=[process])),
        )
        for (name, lines), process in zip(found.items(), processes, strict=True)
    }


@pytest.mark.parametrize("name", KNOWN)
def test_samples_of_a_step_are_of_what_went_forward_for_it(runs, name):
    steps, run = runs[name]
    _, samples, count = KNOWN[name]
    assert len(steps) == count
    assert run.throughput.samples.per_step == pytest.approx(samples)


@pytest.mark.parametrize("name", UNKNOWN)
def test_samples_are_not_known_where_what_goes_forward_are_no_batches_of_a_thread(runs, name):
    _, run = runs[name]
    assert run.throughput.samples.per_s.value is None
    assert run.throughput.samples.reason.startswith("a thread of the script reads batches")
