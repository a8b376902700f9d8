"""DDP with torch.profiler and DDP's own log over the same steps: what both say of a step is written at the end."""

import json
import time

import planting
import torch
import torch.distributed as dist
from planting import OUT, STEPS, Net, batches, loss_of
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

WARM = 10
NAMES = {
    "input": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "forward": "DistributedDataParallel.forward",
    "update": "Optimizer.step#AdamW.step",
    "exchange": "gloo:all_reduce",
}
"""What the profiler calls the parts of a step by itself."""


def main():
    """Train, the first steps without the profiler."""
    dist.init_process_group("gloo")
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = iter(batches())

    def step():
        optimizer.zero_grad()
        loss_of(net, next(loader)).backward()
        optimizer.step()

    for _ in range(WARM):
        step()
    begun = time.monotonic()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            step()
    lasted = time.monotonic() - begun
    sums = {each.key: each.cpu_time_total * 1e-6 / STEPS for each in profiler.key_averages()}
    log = net._get_ddp_logging_data()  # noqa: SLF001 - it has no other name
    said = {
        "step": lasted / STEPS,
        "profiler": {part: sums.get(name) for part, name in NAMES.items()},
        "ddp": {key: value for key, value in log.items() if key.startswith("avg_")},
        "planted": {cause: sum(each[-STEPS:]) / STEPS for cause, each in planting.planted.items()},
    }
    (OUT / f"said-{planting.rank}.json").write_text(json.dumps(said))
    next(loader, None)  # so that the last step has a request behind it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
