#!/bin/sh
# lightning 2.6.6: the optimizer's step, in SimpleProfiler and as Optimizer.step#SGD.step in a torch profiler
# trace, holds the forward and backward passes, which the optimizer calls as its closure.
# In a loop written by hand the span of the same name is the update alone, so that a share of it read from a trace
# names the optimizer as the slowest part of a Lightning step.
# Seen: five steps with 0.1 s in forward: Optimizer.step 0.52 s by torch, optimizer_step 0.53 s by SimpleProfiler,
# 0.00 s by hand.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 lightning==2.6.6
cat > "$folder/check.py" <<'PY'
import logging
import time

import lightning
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.profilers import SimpleProfiler
from torch import nn
from torch.profiler import ProfilerActivity, profile

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
FORWARD_S, STEPS = 0.1, 5


class Network(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def training_step(self, batch, index):
        time.sleep(FORWARD_S)
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def in_optimizer(seen):
    (step,) = (each for each in seen.key_averages() if each.key == "Optimizer.step#SGD.step")
    assert step.count == STEPS, step
    return step.cpu_time_total / 1e6


batches = torch.utils.data.DataLoader(torch.randn(STEPS, 2, 8))
by_lightning = SimpleProfiler()
trainer = Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    profiler=by_lightning,
)
with profile(activities=[ProfilerActivity.CPU]) as seen:
    trainer.fit(Network(), batches)
traced = in_optimizer(seen)
simple = sum(by_lightning.recorded_durations["[LightningModule]Network.optimizer_step"])

network = Network()
optimizer = network.configure_optimizers()
with profile(activities=[ProfilerActivity.CPU]) as seen:
    for index, batch in enumerate(batches):
        optimizer.zero_grad()
        network.training_step(batch, index).backward()
        optimizer.step()
by_hand = in_optimizer(seen)
print("lightning", lightning.__version__, "Optimizer.step %.2f s, optimizer_step %.2f s, by hand %.2f s" % (traced, simple, by_hand))
assert min(traced, simple) > FORWARD_S * STEPS > 2 * by_hand, (traced, simple, by_hand)
PY
cd "$folder"
venv/bin/python -W ignore check.py
