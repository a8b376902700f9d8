"""A script of PyTorch with one of later causes planted: ``python planted_later_script.py CAUSE [heavy]``.

``clean`` has none. Of input: ``tokens`` counts words by a pattern, ``rows`` looks each sample up in a table without an
index, ``packed`` unpacks 256 KiB, ``parsed`` reads 4,096 numbers from JSON, ``drawn`` draws each batch from half a
million weights, ``collect-batch`` collects garbage for each batch. After an update: ``snapshot`` copies all state,
``history`` writes 5,000 earlier steps again, ``tracker`` waits for a server, ``memory`` adds up the process's pages,
``digest`` hashes all state, ``pickled`` pickles it, ``thresholds`` counts a metric at 400 of them, ``passes-behind``
runs the network twelve times more (``passes``: before the pass that trains), ``shell`` starts a shell, ``shown``
formats all state, ``shown-rank`` on rank 0 alone. Of the exchange: ``barriers`` has thirty after an update, ``state``
sends all state in 64 bits, ``micro`` exchanges in each of four micro-steps (``micro-last`` in the last one).
``unrolled-rank`` has rank 1 run a layer more often. ``heavy`` computes so much that the exchange of a clean step is
little.
"""

import copy
import gc
import hashlib
import json
import os
import pickle
import re
import sqlite3
import subprocess
import sys
import urllib.request
import zlib
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, default_collate

CAUSE, HEAVY = sys.argv[1], "heavy" in sys.argv[2:]
STEPS, BATCH, WIDTH, TIMES = (60, 256, 384, 6) if HEAVY else (80, 8, 768, 1)
MICRO = 4 if CAUSE.startswith("micro") else 1
BATCH //= MICRO
STEPS //= 3 if CAUSE == "collect-batch" else 1
OUT = Path(os.environ.get("OUT", "."))
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
TEXT = " ".join(f"word{number % 97} of, a {number % 13} text." for number in range(1000))
PACKED = zlib.compress(os.urandom(1 << 17).hex().encode())
PARSED = json.dumps([number / 7 for number in range(4096)])
EARLIER = [{"step": step, "loss": step / 7, "rate": 0.001} for step in range(5000)]
SERVER = """
import http.server, time
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        time.sleep(0.008)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
server.timeout = 30
print(server.server_port, flush=True)
while True:
    server.handle_request()
"""


class Samples(Dataset):
    """Numbers by chance, each got in the way of the cause."""

    def __init__(self, count):
        self.count = count
        self.numbers = torch.rand(256)
        self.table = sqlite3.connect(":memory:")
        if CAUSE == "rows":
            self.table.execute("create table samples (name text, label integer)")
            rows = ((f"sample-{number}", number % 10) for number in range(20_000))
            self.table.executemany("insert into samples values (?, ?)", rows)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if CAUSE == "tokens":
            Counter(re.findall(r"\w+", TEXT.lower()))
        if CAUSE == "rows":
            self.table.execute("select label from samples where name = ?", (f"sample-{index}",)).fetchall()
        if CAUSE == "packed":
            zlib.decompress(PACKED)
        if CAUSE == "parsed":
            return torch.tensor(json.loads(PARSED)[:256]) / 585, index % 10
        return self.numbers, index % 10


class Drawn:
    """Batches of samples that are drawn by weight."""

    def __iter__(self):
        weights = torch.rand(500_000)
        for _ in range(STEPS):
            yield [index % BATCH for index in torch.multinomial(weights, BATCH).tolist()]

    def __len__(self):
        return STEPS


def collate(samples):
    """Put a batch together."""
    if CAUSE == "collect-batch":
        gc.collect()
    return default_collate(samples)


class Net(nn.Module):
    """Three layers, of which a heavy net uses the middle one several times."""

    def __init__(self):
        super().__init__()
        middle = [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        times = 3 * TIMES if CAUSE == "unrolled-rank" and RANK == 1 else TIMES
        self.layers = nn.Sequential(nn.Linear(256, WIDTH), nn.ReLU(), *middle * times, nn.Linear(WIDTH, 10))

    def forward(self, x):
        return self.layers(x)


def count_right(net, x):
    """Run the network twelve times without gradient."""
    with torch.no_grad():
        for _ in range(12):
            net(x).argmax(1)


def after_update(net, optimizer, x, outputs, port):
    """Do what the cause does after an update."""
    state = (net.state_dict(), optimizer.state_dict())
    if CAUSE == "snapshot":
        copy.deepcopy(state)
    if CAUSE == "history":
        (OUT / "history.json").write_text(json.dumps(EARLIER))
    if CAUSE == "tracker":
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=b"loss=1")
    if CAUSE == "memory":
        sum(int(size) for size in re.findall(r"Rss: +(\d+)", Path("/proc/self/smaps").read_text()))
    if CAUSE in {"digest", "pickled"}:
        arrays = [each.numpy() for moments in state[1]["state"].values() for each in moments.values()]
        arrays += [each.numpy() for each in state[0].values()]
        if CAUSE == "digest":
            hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()
        else:
            (OUT / "state.pickle").write_bytes(pickle.dumps(arrays))
    if CAUSE == "thresholds":
        shares = outputs.detach().softmax(1)
        [(shares > number / 400).sum().item() for number in range(400)]
    if CAUSE == "passes-behind":
        count_right(net, x)
    if CAUSE == "shell":
        subprocess.run(["sh", "-c", "grep Free /proc/meminfo | cat"], capture_output=True, check=True)  # noqa: S607
    if CAUSE == "shown" or (CAUSE == "shown-rank" and RANK == 0):
        str(state)
    if CAUSE == "barriers":
        for _ in range(30):
            dist.barrier()
    if CAUSE == "state":
        for each in (
            *state[0].values(),
            *(each for moments in state[1]["state"].values() for each in moments.values()),
        ):
            dist.broadcast(each.double(), 0)


def train(net, optimizer, loader, port):
    """Train on all batches."""
    for number, (x, y) in enumerate(loader, 1):
        last = number % MICRO == 0
        if CAUSE == "passes":
            count_right(net, x)
        with net.no_sync() if CAUSE == "micro-last" and not last else nullcontext():
            outputs = net(x)
            loss = nn.functional.cross_entropy(outputs, y)
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            after_update(net, optimizer, x, outputs, port)
    print(f"loss {loss.item():.3f}")


def main():
    """Train, beside a server where the cause is one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Net()
    if WORLD > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters())
    samples = Samples(STEPS * MICRO * BATCH)
    sizes = {"batch_sampler": Drawn()} if CAUSE == "drawn" else {"batch_size": BATCH}
    loader = DataLoader(samples, collate_fn=collate, **sizes)
    if CAUSE == "tracker":
        command = [sys.executable, "-I", "-c", SERVER]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                train(net, optimizer, loader, server.stdout.readline().strip())
            finally:
                server.kill()
    else:
        train(net, optimizer, loader, None)
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
