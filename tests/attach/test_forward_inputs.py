"""Samples and tokens of scripts that make their batches by hand, by the tensors that go forward, in real PyTorch."""

import pytest
from alone_and_attached import record_of, records_of
from warm_frameworks import warm_framework

from steptime.attach.pytorch.forward_inputs import CATEGORIES, NO_TEXT, ORDER, ROWS, SINGLE
from steptime.attach.step_inputs import AGAIN, COMPUTED, SEVERAL
from steptime.attached.summary import attached_run
from steptime.launchers.base import free_ports
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader, read_attached

pytestmark = pytest.mark.framework("pytorch")
BEGIN = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
torch.set_num_threads(1)
text = torch.randint(0, 20, (2000,))
pictures, labels = torch.randn(400, 3, 8, 8), torch.randint(0, 4, (400,))

class Language(nn.Module):
    def __init__(self, loss=False):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, input_ids, labels=None, attention_mask=None):
        logits = self.head(self.embed(input_ids))
        if labels is None:
            return logits
        return logits, cross_entropy(logits.flatten(0, 1), labels.flatten())

class LossAlone(Language):
    attend = lambda self, x: nn.functional.scaled_dot_product_attention(x, x, x)

    def forward(self, input_ids, labels):
        logits = self.head(self.attend(self.embed(input_ids)))
        return cross_entropy(logits.flatten(0, 1), labels.flatten())

def drawn(rows, length):
    at = torch.randint(len(text) - length - 1, (rows,))
    return torch.stack([text[i:i + length] for i in at]), torch.stack([text[i + 1:i + 1 + length] for i in at])

def update(loss=None):
    if loss is not None:
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()

net = Language()
classes = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 4))
"""
SGD = "optimizer = torch.optim.SGD(net.parameters(), 0.05)\n"
SLICES = "x, y = pictures[i * 8:i * 8 + 8], labels[i * 8:i * 8 + 8]"
LOOP = """
for i in range(12):
    {0}
"""
# What a step has: samples and tokens, or why it has none.
KNOWN = {
    "accumulated, evaluated and generated from, as nanoGPT": (
        """
        x, y = drawn(4, 16)
        for i in range(12):
            if i % 5 == 4:
                net.eval()
                with torch.no_grad():
                    [net(*drawn(4, 16)) for _ in range(3)]
                    net(text[None, :7])
                net.train()
            for _ in range(3):
                logits, loss = net(x, y)
                x, y = drawn(4, 16)
                (loss / 3).backward()
            update()
        """,
        (ORDER, 3 * 4 * 16),
    ),
    "a sequence first, as word_language_model": (
        """
        stream = text[:1800].view(6, -1).t()
        for i in range(0, 240, 20):
            out = net(stream[i:i + 20])
            update(cross_entropy(out.view(-1, 20), stream[i + 1:i + 21].reshape(-1)))
        """,
        (ORDER, 20 * 6),
    ),
    "named as a text": (
        LOOP.format("x, y = drawn(4, 16); update(net(attention_mask=None, labels=y, input_ids=x)[1])"),
        (4, 64),
    ),
    "a loss alone comes back": (
        "net = LossAlone()\n" + SGD + LOOP.format("x, y = drawn(4, 16); update(net(x, y))"),
        (ORDER, 64),
    ),
    "slices of pictures": (
        "net = classes\n" + SGD + LOOP.format(SLICES + "; update(cross_entropy(net(x), y))"),
        (8, NO_TEXT),
    ),
    "one array again in each step": (
        "net = classes\n"
        + SGD
        + "x, y = pictures[:16], labels[:16]\n"
        + LOOP.format("update(cross_entropy(net(x), y))"),
        (16, NO_TEXT),
    ),
    "a teacher's pass": (
        """
        net, teacher = classes, nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for i in range(12):
            x = pictures[i * 8:i * 8 + 8]
            with torch.no_grad():
                soft = teacher(x + 0.1)
            update(cross_entropy(net(x), soft.softmax(1)))
        """,
        (8, NO_TEXT),
    ),
    "a teacher's pass with gradients of the same array": (
        """
        net, teacher = classes, nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for i in range(12):
            x = pictures[i * 8:i * 8 + 8]
            update(cross_entropy(net(x), teacher(x).detach().softmax(1)))
        """,
        (8, NO_TEXT),
    ),
    "an evaluation with gradients": (
        "net = classes\n"
        + SGD
        + LOOP.format("if i % 5 == 4: sum(net(pictures[:64]).sum().item() for _ in range(4))\n    " + SLICES)
        + "    update(cross_entropy(net(x), y))\n",
        (8, NO_TEXT),
    ),
    "an encoder before a decoder": (
        """
        net = nn.Linear(192, 16)
        decoder = nn.Linear(16, 192)
        optimizer = torch.optim.SGD([*net.parameters(), *decoder.parameters()], 0.05)
        for i in range(12):
            x = pictures[i * 8:i * 8 + 8].flatten(1)
            update(((decoder(net(x)) - x) ** 2).mean())
        """,
        (8, NO_TEXT),
    ),
    "actor and critic of one array": (
        """
        net, critic = nn.Linear(6, 2), nn.Linear(6, 1)
        optimizer = torch.optim.SGD([*net.parameters(), *critic.parameters()], 0.05)
        for i in range(12):
            x = torch.randn(32, 6)
            net(x).sum().backward()
            update(critic(x).sum())
        """,
        (32, NO_TEXT),
    ),
    "a closure that L-BFGS calls several times": (
        """
        net = nn.Linear(6, 1)
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)
        x, y = torch.randn(40, 6), torch.randn(40, 1)
        def closure():
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            return loss
        for i in range(12):
            optimizer.step(closure)
        """,
        (40, NO_TEXT),
    ),
    "the second half of a step of SAM": (
        "net = classes\n"
        + SGD
        + LOOP.format(SLICES)
        + "    cross_entropy(net(x), y).backward()\n    optimizer.zero_grad()\n    update(cross_entropy(net(x), y))\n",
        (8, NO_TEXT),
    ),
    "rows of categories": (
        """
        net = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(26 * 4, 1))
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for i in range(12):
            update(net(drawn(32, 26)[0]).mean())
        """,
        (32, CATEGORIES),
    ),
    "discriminator and generator": (
        """
        net, made = nn.Linear(6, 1), nn.Linear(2, 6)
        optimizer = torch.optim.SGD([*net.parameters(), *made.parameters()], 0.05)
        for i in range(12):
            update(net(torch.randn(8, 6)).mean() - net(made(torch.randn(8, 2)).detach()).mean())
        """,
        (SEVERAL, SEVERAL),
    ),
    "halves of a batch for one loss": (
        "net = classes\n" + SGD + LOOP.format(SLICES + "; update(sum(net(half).sum() for half in x.chunk(2)))"),
        (SEVERAL, SEVERAL),
    ),
    "the same array accumulated": (
        "net = classes\n" + SGD + "x = pictures[:8]\n" + LOOP.format("net(x).sum().backward(); update(net(x).sum())"),
        (AGAIN, AGAIN),
    ),
    "a buffer that takes one batch after the other": (
        """
        net = LossAlone()
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        buffer = torch.zeros(2 * 64, dtype=torch.long)
        x, y = buffer[:64].view(4, 16), buffer[64:].view(4, 16)
        for i in range(12):
            for _ in range(3):
                buffer.copy_(torch.cat(drawn(4, 16)).flatten())
                net(x, y).backward()
            update()
        """,
        (ORDER, 3 * 64),
    ),
    "a buffer that is filled by slices": (
        """
        net, x = classes, torch.zeros(8, 3, 8, 8)
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for i in range(12):
            for k in range(2):
                x[:] = pictures[i * 8 + k:i * 8 + k + 8]
                cross_entropy(net(x), labels[:8]).backward()
            update()
        """,
        (16, NO_TEXT),
    ),
    "two halves of a loss over one buffer": (
        """
        net, x = nn.Linear(6, 1), torch.zeros(8, 6)
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for i in range(12):
            loss = net(x.normal_()).mean().detach()
            update((net(x.normal_()).mean() - loss) ** 2)
        """,
        (SEVERAL, SEVERAL),
    ),
    "a sequence of vectors first": (
        """
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.head = nn.LSTM(6, 8), nn.Linear(8, 2)
            def forward(self, x):
                return self.head(self.rnn(x)[0])
        net = Tagger()
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for i in range(12):
            update(net(torch.randn(20, 4, 6)).mean())
        """,
        (ORDER, ORDER),
    ),
    "a single observation": (
        "net = nn.Linear(4, 4)\n" + SGD + LOOP.format("update(net(torch.randn(4)).sum())"),
        (SINGLE, SINGLE),
    ),
    "a sum of rows comes back": (
        """
        class Energy(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 1)
            def forward(self, x):
                return self.layer(x).sum()
        net = Energy()
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        for i in range(12):
            update(net(torch.randn(8, 6)))
        """,
        (ROWS, ROWS),
    ),
    "computed before it goes forward": (
        """
        net = nn.Linear(6, 1)
        table = nn.Parameter(torch.randn(20, 6))
        optimizer = torch.optim.SGD([*net.parameters(), table], 0.05)
        for i in range(12):
            update(net(table[text[i:i + 8]]).sum())
        """,
        (COMPUTED, COMPUTED),
    ),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The lines of each script."""
    scripts = {name: SGD + _unindented(script) for name, (script, _) in KNOWN.items()}
    return records_of(tmp_path_factory.mktemp("inputs"), "pytorch", BEGIN, scripts)


def _unindented(script: str) -> str:
    return script.replace("\n        ", "\n")


@pytest.mark.parametrize("name", KNOWN)
def test_what_goes_forward_is_counted_or_why_it_is_not_is_on_record(records, name):
    lines, (_, expected) = records[name], KNOWN[name]
    steps = [line for line in lines if line["kind"] == "step"]
    why = {phase: line["reason"] for line in lines if line["kind"] == "unseen" for phase in line["phases"]}
    assert len(steps) == 12
    for amount, known in zip(("samples", "tokens"), expected, strict=True):
        # The first step may hold what was done before training.
        assert {step.get(amount, why.get(amount)) for step in steps[1:]} == {known}


def test_a_script_with_a_loader_has_the_batches_of_the_loader(tmp_path):
    script = """
from torch.utils.data import DataLoader, TensorDataset
for x, y in DataLoader(TensorDataset(pictures, labels), 10):
    update(cross_entropy(net(x), y))
print(net[2].weight.sum().item())
"""
    lines = record_of(tmp_path, "pytorch", BEGIN + "net = classes\n" + SGD + script)
    assert {line["samples"] for line in lines if line["kind"] == "step"} == {10}
    assert not [line for line in lines if line["kind"] == "unseen"]


RANKS = (
    BEGIN
    + """
import os, sys, time
import torch.distributed as dist
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if ranks[rank]:
        continue
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="NUMBER")
    dist.init_process_group("gloo")
    MODEL
    torch.manual_seed(SEED)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for i in range(40):
        x, y = drawn(4, 16)
        time.sleep(0.005)
        update(net(x, y)[1])
    time.sleep(0.5)
    dist.destroy_process_group()
    sys.exit()
assert [os.waitpid(each, 0)[1] for each in ranks] == [0, 0]
"""
)
DDP = "net = nn.parallel.DistributedDataParallel(net)"
OTHER_WEIGHTS = "torch.manual_seed(rank); net = Language()"


@pytest.mark.parametrize(
    ("model", "seed", "per_step", "named"),
    [(DDP, "rank", 128.0, False), (DDP, "0", 64.0, True), (OTHER_WEIGHTS, "0", 64.0, False)],
    ids=["own batches", "equal seeds", "pieces of a model"],
)
def test_tokens_that_several_ranks_train_on_count_once(tmp_path, model, seed, per_step, named):
    (port,) = free_ports(1)
    script = RANKS.replace("NUMBER", str(port)).replace("MODEL", model).replace("SEED", seed)
    (tmp_path / "script.py").write_text(script)
    warm_framework("pytorch", attached=True).run_attached(tmp_path, "script.py")
    header = AttachedHeader(command=["torchrun"], started_at="", boot="", begin_ns=0, wall_minus_monotonic_ns=0)
    run = attached_run(header, read_attached(PlainFolder(tmp_path), tmp_path / "record"))
    assert (run.world, run.throughput.tokens.per_step, run.throughput.samples.per_step) == (2, per_step, None)
    assert any("a seed of its own for each rank is missing" in each.sentence for each in run.findings) == named
