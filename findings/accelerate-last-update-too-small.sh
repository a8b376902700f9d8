#!/bin/sh
# accelerate 1.15.0: accumulate() updates at the end of the loader however few micro-batches are left, while backward()
# divides by the full count: the last update of each epoch is too small and costs what a full one does.
# Seen: 10 equal micro-batches in fours, learning rate 1: the weight moves by 1, 1 and 0.5 at micro-batches 4, 8 and 10;
# optimizer.step() is called 10 times an epoch and runs 3 times.
# One would guess either 2 updates with the rest carried over into the next epoch, or a third by the mean of what is
# left; and that calls of step() are updates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 accelerate==1.15.0
cat > "$folder/check.py" <<'PY'
import sys

import accelerate
import torch
from torch.utils.data import DataLoader, TensorDataset

accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
network = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(network.weight)
sgd = torch.optim.SGD(network.parameters(), lr=1.0)
ran = []
sgd.register_step_post_hook(lambda *_: ran.append(1))
network, optimizer, loader = accelerator.prepare(network, sgd, DataLoader(TensorDataset(torch.ones(10, 1))))

called, moves = 0, []
for epoch in range(2):
    for number, (inputs,) in enumerate(loader, 1):
        before = network.weight.item()
        with accelerator.accumulate(network):
            accelerator.backward(network(inputs).mean())  # of which the gradient is 1 for each micro-batch
            optimizer.step()
            called += 1
            optimizer.zero_grad()
        if network.weight.item() != before:
            moves.append((epoch, number, before - network.weight.item()))
print("accelerate", accelerate.__version__, "(epoch, micro-batch, move):", *moves)
print("step() called", called, "times, run", len(ran), "times")
expected = [(epoch, number, move) for epoch in range(2) for number, move in ((4, 1.0), (8, 1.0), (10, 0.5))]
sys.exit(moves != expected or (called, len(ran)) != (20, 6))
PY
cd "$folder"
venv/bin/python -W ignore check.py
