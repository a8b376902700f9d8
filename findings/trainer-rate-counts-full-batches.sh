#!/bin/sh
# transformers 5.24.0: with max_steps, train_samples_per_second counts every batch as full, even the shorter one
# at the end of each pass over the data.
# With num_train_epochs it counts the samples that the data set has: the same run, with the same steps over the same
# samples, gets another rate by the option that ends it.
# Seen: 10 samples in batches of 8, 4 steps: 20 samples went in, 32 by the rate with max_steps, 20 with
# num_train_epochs.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.24.0 accelerate==1.15.0
cat > "$folder/check.py" <<'PY'
import tempfile

import torch
import transformers
from transformers import Trainer, TrainingArguments


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.samples = torch.nn.Linear(4, 1), 0

    def forward(self, values, labels):
        self.samples += len(values)
        return {"loss": ((self.layer(values)[:, 0] - labels) ** 2).mean()}


def trained(**end):
    """Return the steps, the samples that went in, and those that the reported rate stands for."""
    network = Network()
    data = [{"values": torch.randn(4), "labels": 0.0} for _ in range(10)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
            save_strategy="no",
            **end,
        )
        result = Trainer(network, arguments, train_dataset=data).train()
    rate, runtime = (result.metrics["train_" + name] for name in ("samples_per_second", "runtime"))
    return result.global_step, network.samples, rate * runtime


by_steps, by_epochs = trained(max_steps=4), trained(num_train_epochs=2)
print("transformers", transformers.__version__, "max_steps: %d steps, %d samples, %.1f by the rate;" % by_steps, "num_train_epochs: %d, %d, %.1f" % by_epochs)
assert by_steps[:2] == by_epochs[:2] == (4, 20), (by_steps, by_epochs)
assert abs(by_steps[2] - 32) < 1 and abs(by_epochs[2] - 20) < 1, (by_steps, by_epochs)
PY
cd "$folder"
venv/bin/python -W ignore check.py
