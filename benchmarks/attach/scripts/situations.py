"""Training scripts as problem reports have them, each of which trains for a second or two: ``situations.py NAME``."""

import copy
import gc
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS, BATCH = 40, 8
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
RANK = int(os.environ.get("RANK", "0"))


class Samples(Dataset):
    """Random vectors of classes that follow from them."""

    def __len__(self):
        return STEPS * BATCH * RANKS

    def __getitem__(self, index):
        values = torch.randn(64, generator=torch.Generator().manual_seed(index))
        return values, int(values.sum() > 0)


class Net(nn.Module):
    """Two layers, with a pause of the given seconds in the forward pass."""

    def __init__(self, pause_s=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.pause_s = pause_s

    def forward(self, values):
        """Return the logits."""
        time.sleep(self.pause_s)
        return self.layers(values)


def loader(**more):
    """Return the batches of this rank, unless ``sampler`` says otherwise."""
    more.setdefault("sampler", DistributedSampler(Samples()) if RANKS > 1 else None)
    return DataLoader(Samples(), BATCH, **more)


def train(net, optimizer, batches, each=lambda _: None):
    """Train on the batches, with ``each`` behind a step."""
    for number, (values, classes) in enumerate(batches):
        optimizer.zero_grad()
        cross_entropy(net(values), classes).backward()
        optimizer.step()
        each(number)


def every(count, act):
    """Return a function of a step's number that acts in each ``count``-th."""
    return lambda number: act() if number % count == count - 1 else None


def accumulation_around_ddp(net, optimizer):
    for number, (values, classes) in enumerate(loader()):
        last = number % 4 == 3
        (cross_entropy((net if last else net.module)(values), classes) / 4).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def accumulation_with_each_exchange(net, optimizer):
    for number, (values, classes) in enumerate(loader()):
        (cross_entropy(net(values), classes) / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def no_sampler(net, optimizer):
    train(net, optimizer, loader(sampler=None))


def evaluation_on_rank_0(net, optimizer):
    def evaluate():
        if RANK == 0:
            net.eval()
            with torch.no_grad():
                for values, _ in DataLoader(Samples(), 64):
                    net.module(values)
                    time.sleep(0.02)
            net.train()
        dist.barrier()

    train(net, optimizer, loader(), every(10, evaluate))


def checkpoint_on_rank_0(net, optimizer):
    def save():
        if RANK == 0:
            torch.save(net.state_dict(), os.devnull)
            time.sleep(0.2)
        dist.barrier()

    train(net, optimizer, loader(), every(10, save))


def barriers_in_each_step(net, optimizer):
    for values, classes in loader():
        if RANK == 1:
            time.sleep(0.02)
        dist.barrier()
        optimizer.zero_grad()
        loss = cross_entropy(net(values), classes)
        dist.barrier()
        loss.backward()
        optimizer.step()


def a_slow_rank(net, optimizer):
    net.module.pause_s = 0.02 * RANK
    train(net, optimizer, loader())


def workers_of_each_epoch(net, optimizer):
    for _ in range(6):
        train(net, optimizer, DataLoader(torch.utils.data.Subset(Samples(), range(80)), BATCH, num_workers=1))


def compiled_for_each_length(net, optimizer):
    del net, optimizer
    own = Net()
    compiled = torch.compile(own.layers, backend="eager", dynamic=False)
    sgd = torch.optim.SGD(own.parameters(), 0.1)
    for number in range(STEPS):
        values = torch.randn(8 + number % 7, 64)
        sgd.zero_grad()
        compiled(values).pow(2).mean().backward()
        sgd.step()


def pictures_logged_now_and_then(net, optimizer):
    train(net, optimizer, loader(), every(10, lambda: time.sleep(0.2)))


def garbage_in_each_step(net, optimizer):
    kept = [[number] for number in range(300_000)]
    train(net, optimizer, loader(), lambda _: gc.collect())
    del kept


def average_of_weights_by_copies(net, optimizer):
    average = copy.deepcopy(net)

    def update(_):
        for mean, new in zip(average.parameters(), net.parameters()):
            mean.data.copy_(0.99 * mean.data + 0.01 * copy.deepcopy(new.data))
            time.sleep(0.003)

    train(net, optimizer, loader(), update)


def a_new_optimizer_in_each_step(net, optimizer):
    del optimizer
    for values, classes in loader():
        own = torch.optim.Adam(net.parameters())
        cross_entropy(net(values), classes).backward()
        own.step()
        own.zero_grad()


def words_made_tokens_in_collate(net, optimizer):
    def collate(samples):
        time.sleep(0.015)
        return torch.stack([values for values, _ in samples]), torch.tensor([each for _, each in samples])

    train(net, optimizer, loader(collate_fn=collate))


def main():
    """Train as the situation named on the command line does."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Net()
    if RANKS > 1:
        dist.init_process_group("gloo")
        net = nn.parallel.DistributedDataParallel(net)
    globals()[sys.argv[1]](net, torch.optim.SGD(net.parameters(), 0.1))
    if RANKS > 1:
        dist.destroy_process_group()


main()
