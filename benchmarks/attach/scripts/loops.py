"""Training loops of many kinds in plain torch: `python loops.py KIND`, alone or by a launcher."""

import contextlib
import os
import sys

import planting
import torch
import torch.distributed as dist
from planting import BATCH, LOAD_S, OUT, STEPS, WIDTH, Net, batches, evaluate, finish, loss_of, pause, timed
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def join():
    """Join the other processes, if there are any."""
    if planting.world > 1 and not dist.is_initialized():
        dist.init_process_group("gloo", rank=planting.rank, world_size=planting.world)


def parallel(net):
    """Return ``net`` as DDP has it, where there are several processes."""
    return DistributedDataParallel(net) if planting.world > 1 else net


def adam(net, **settings):
    """Return an optimizer."""
    return torch.optim.AdamW(net.parameters(), lr=1e-3, **settings)


def train(net, optimizer, loader, *, accumulate=1, clip=False, no_sync=True, forward=None):
    """Train with evaluation half-way and a checkpoint later."""
    inner, evaluated = getattr(net, "module", net), planting.evaluation_loader()
    step = micro = 0
    for batch in planting.endless(loader):
        micro += 1
        due = micro % accumulate == 0
        with net.no_sync() if not due and no_sync and hasattr(net, "no_sync") else contextlib.nullcontext():
            loss = loss_of(net if forward is None else forward, batch) / accumulate
            loss.backward()
        if not due:
            continue
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step == STEPS // 2:
            timed("evaluation", evaluate, inner, evaluated)
        if step == STEPS * 2 // 3 and planting.rank == 0:
            timed("checkpoint", torch.save, net.state_dict(), OUT / "net.pt")
        if step == STEPS:
            return loss
    return None


def ddp():
    join()
    net = parallel(Net())
    finish(train(net, adam(net), batches(), clip=True), net)


def accumulation():
    join()
    net = parallel(Net())
    finish(train(net, adam(net), batches(), accumulate=4, clip=True), net)


def iterable():
    join()
    net = parallel(Net())
    finish(train(net, adam(net), batches(planting.Stream())), net)


def workers():
    join()
    net = parallel(Net())
    loader = batches(planting.Samples(48), num_workers=1, persistent_workers=True)
    finish(train(net, adam(net), loader), net)


def checkpointing(way="plain"):
    join()
    net = parallel(Net(checkpoint=way))
    finish(train(net, adam(net), batches()), net)


def reentrant():
    checkpointing("reentrant")


def two_loaders():
    """Batches of two loaders in each step."""
    net = Net(slow=False)
    optimizer = adam(net)
    further = batches(planting.Samples(4096, LOAD_S, "second load"))
    for step, (first, second) in enumerate(zip(batches(), further)):
        loss = loss_of(net, first) + loss_of(net, second)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == STEPS:
            break
    finish(loss, net)


def compiled():
    join()
    net = parallel(Net(slow=False))
    model = torch.compile(net, backend="aot_eager")
    finish(train(net, adam(net), batches(), forward=model), net, **graphs())


def compiled_step():
    net = Net(slow=False)
    optimizer = adam(net)

    @torch.compile(backend="aot_eager")
    def step(batch):
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        return loss

    for number, batch in enumerate(batches()):
        loss = step(batch)
        if number == STEPS:
            break
    finish(loss, net, **graphs())


def graphs():
    """Return what Dynamo counted."""
    from torch._dynamo.utils import counters

    return {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values())}


def fsdp2():
    join()
    from torch.distributed.fsdp import fully_shard

    net = Net()
    for layer in net.body:
        fully_shard(layer)
    fully_shard(net)
    finish(train(net, adam(net), batches(), no_sync=False), net)


def tensor_parallel():
    join()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, 10)

        def forward(self, x):
            if planting.rank == 1:
                pause("slow", planting.SLOW_S)
            return self.head(x + self.second(torch.relu(self.first(x))))

    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    net = parallelize_module(Pair(), init_device_mesh("cpu", (planting.world,)), plan)
    finish(train(net, adam(net, foreach=False), batches()), net)


def pipeline():
    join()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    part = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) if planting.rank == 0 else Net()
    stage = PipelineStage(part, planting.rank, planting.world, torch.device("cpu"))
    optimizer = adam(part)
    schedule = Schedule1F1B(stage, BATCH, loss_fn=functional.cross_entropy)
    for step, (x, y) in enumerate(batches()):
        if planting.rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=[])
        optimizer.step()
        optimizer.zero_grad()
        if step == STEPS:
            break
    finish(None, part)


def nanogpt():
    """No loader: the batch of the next micro-step is made between forward and backward; evaluation on rank 0 alone."""
    join()
    net = parallel(Net())
    inner, optimizer = getattr(net, "module", net), adam(net)
    data = torch.randn(4096, WIDTH)

    def get_batch():
        pause("load", LOAD_S)
        return data[torch.randint(4096, (BATCH,))], torch.randint(10, (BATCH,))

    batch = get_batch()
    for step in range(STEPS):
        if step % 10 == 0 and step and planting.rank == 0:
            state = torch.get_rng_state()
            timed("evaluation", evaluate, inner)
            torch.set_rng_state(state)
            timed("checkpoint", torch.save, inner.state_dict(), OUT / "net.pt")
        for micro in range(4):
            if planting.world > 1:
                net.require_backward_grad_sync = micro == 3
            loss = loss_of(net, batch) / 4
            batch = get_batch()
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    finish(loss, net)


def gan():
    """A loader, two networks and two updates a step."""
    generator, critic, projection = Net(slow=False), Net(slow=True), nn.Linear(10, WIDTH)
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for step, (x, _) in enumerate(batches()):
        with torch.no_grad():
            fake = projection(generator(torch.randn(BATCH, WIDTH)))
        of_critic.zero_grad()
        (functional.softplus(-critic(x)).mean() + functional.softplus(critic(fake)).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        loss = functional.softplus(-critic(projection(generator(torch.randn(BATCH, WIDTH))))).mean()
        loss.backward()
        of_generator.step()
        if step == STEPS:
            break
    finish(loss, generator, critic)


def gan_without_loader():
    """Three updates of the critic and one of the generator in each round."""
    generator, critic, projection = Net(slow=False), Net(slow=True), nn.Linear(10, WIDTH)
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(STEPS):
        for _ in range(3):
            pause("load", LOAD_S)
            of_critic.zero_grad()
            functional.softplus(-critic(torch.randn(BATCH, WIDTH))).mean().backward()
            of_critic.step()
        of_generator.zero_grad()
        loss = functional.softplus(-critic(projection(generator(torch.randn(BATCH, WIDTH))))).mean()
        loss.backward()
        of_generator.step()
    finish(loss, generator, critic)


def teacher():
    """A frozen network whose forward without gradient is the step's own."""
    frozen, net = Net(slow=True), Net(slow=False)
    optimizer, evaluated = adam(net), planting.evaluation_loader()
    for step, (x, _) in enumerate(batches()):
        with torch.no_grad():
            target = frozen(x)
        loss = functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == STEPS // 2:
            timed("evaluation", evaluate, net, evaluated)
        if step == STEPS:
            break
    finish(loss, net)


def reinforcement():
    """Rollouts without gradient between rounds of updates."""
    net = Net(slow=False)
    optimizer = adam(net)
    for number in range(6):
        # What comes before the first update is before the first step.
        memory = timed("rollout" if number else "first rollout", rollout, net)
        for _ in range(10):
            loss = loss_of(net, (memory, torch.zeros(len(memory), dtype=torch.long)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    finish(loss, net)


def rollout(net):
    """Return ten observations, each from an environment that takes 10 ms."""
    seen = []
    with torch.no_grad():
        for _ in range(10):
            seen.append(net(torch.randn(BATCH, WIDTH)))
            pause("environment", 0.01)
    return torch.randn(8, WIDTH)


def executed():
    """A script that executes itself anew."""
    if not os.environ.get("AGAIN"):
        os.environ["AGAIN"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - what is to be seen
    ddp()


def crash():
    """A worker that dies in its eighth step of the first attempt."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" and planting.rank == 1:
        step = torch.optim.AdamW.step
        seen = []

        def dying(*arguments, **settings):
            seen.append(1)
            if len(seen) == 8:
                os._exit(3)
            return step(*arguments, **settings)

        torch.optim.AdamW.step = dying
    ddp()


def child(number, port):
    """Train as process ``number`` of two."""
    planting.rank, planting.world = number, 2
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    join()
    net = parallel(Net(slow=number == 1))
    finish(train(net, adam(net), batches()), net)
    dist.destroy_process_group()


def spawned(method="spawn"):
    torch.multiprocessing.start_processes(child, args=(os.environ["PORT"],), nprocs=2, start_method=method)


def forked():
    spawned("fork")


KINDS = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and value.__code__.co_argcount <= 1
}

if __name__ == "__main__":
    KINDS[sys.argv[1]]()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
