"""Short steps on a GPU, to compare what `steptime attach` costs and shows: ``python on_gpu_short.py KIND MS``.

``eager``, ``profiled`` (inside torch.profiler, which sees the device alone), ``reduced`` (``torch.compile`` with CUDA
graphs), ``small`` (a network of small layers, eager) and ``small_graph`` (its step as one CUDA graph). A network gets
as many layers as ``MS`` milliseconds suffice for, or as LAYERS has. Prints JSON: layers, mean seconds of a step
between two synchronisations and, where ``EVENTS`` is set, by events of its own. Without a GPU it runs on processors,
which shows that it runs.
"""

import contextlib
import json
import os
import sys
import time

import torch
from torch import nn

ON_GPU = torch.cuda.is_available()
STEPS, WARM, TRIED = (600, 100, 100) if ON_GPU else (5, 2, 1)
DEVICE = "cuda" if ON_GPU else "cpu"
WIDTH, BATCH, SMALL = (2048, 1024, 24) if ON_GPU else (16, 4, 2)
synchronize = torch.cuda.synchronize if ON_GPU else (lambda: None)


class Timed:
    """The network, its optimizer and its steps."""

    def __init__(self, layers, width, batch):
        torch.manual_seed(0)
        made = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.net = self.module = nn.Sequential(*made).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.x = torch.randn(batch, width, device=DEVICE)
        self.marks = []

    def mark(self):
        """Mark the end of a step by an event of the script's own."""
        if ON_GPU and os.environ.get("EVENTS"):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)

    def step(self):
        """Train one step."""
        self.optimizer.zero_grad()
        loss = self.module(self.x).square().mean()
        loss.backward()
        self.optimizer.step()

    def run(self, steps, step=None):
        """Return the mean seconds of ``steps`` steps between two synchronisations."""
        synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            (step or self.step)()
            self.mark()
        synchronize()
        return (time.perf_counter() - started) / steps


def layers_for(milliseconds):
    """Return how many layers make a step of so many milliseconds."""
    if os.environ.get("LAYERS"):
        return int(os.environ["LAYERS"])
    few, many = (Timed(count, WIDTH, BATCH) for count in (2, 10))
    for each in (few, many):
        each.run(TRIED)
    each_s = max((many.run(TRIED) - few.run(TRIED)) / 8, 1e-4)
    return max(2, round(milliseconds / 1e3 / each_s))


def graph_of(timed):
    """Return the replay of a step as one CUDA graph; on processors the step."""
    if not ON_GPU:
        return timed.step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            timed.step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    timed.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(captured):
        timed.step()
    return captured.replay


def main():
    """Time the steps of a kind."""
    kind, small = sys.argv[1], sys.argv[1].startswith("small")
    layers = SMALL if small else layers_for(float(sys.argv[2]))
    timed = Timed(layers, *((WIDTH // 8, BATCH // 16) if small and ON_GPU else (WIDTH, BATCH)))
    if kind == "reduced" and ON_GPU:
        timed.module = torch.compile(timed.net, mode="reduce-overhead")
    step = graph_of(timed) if kind == "small_graph" else None
    timed.run(WARM, step)
    timed.marks.clear()
    profiling = contextlib.ExitStack()
    if kind == "profiled":
        watched = torch.profiler.ProfilerActivity.CUDA if ON_GPU else torch.profiler.ProfilerActivity.CPU
        profiling.enter_context(torch.profiler.profile(activities=[watched]))
    with profiling:
        step_s = timed.run(STEPS, step)
    events_s = timed.marks[0].elapsed_time(timed.marks[-1]) / (len(timed.marks) - 1) / 1e3 if timed.marks else None
    print(json.dumps({"kind": kind, "layers": layers, "step_s": step_s, "events_s": events_s}), flush=True)


if __name__ == "__main__":
    main()
