#!/bin/sh
# Lightning 2.6.6 with torch 2.13.0, several processes, strategy "ddp": before every batch, also those that only
# accumulate gradients (where DDP itself sends nothing), rank 0 broadcasts one number, whether it received SIGTERM, and
# every rank reads it with item(). Each batch so holds a collective in which ranks wait for rank 0, and on a device a
# wait of the host for all that was queued before. One process does neither.
# Seen: 12 batches in 3 updates, 2 processes: 12 broadcasts of 1 number and 12 reads on each rank; 1 process: 0 and 0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 lightning==2.6.6
cat > "$folder/check.py" <<'PY'
import sys

import lightning
import torch

PROCESSES, BATCHES, ACCUMULATED = int(sys.argv[1]), 12, 4
counts = {"broadcasts": 0, "reads": 0, "updates": 0}
fitting = False


def counted(function, name, wanted):
    def call(*args, **kwargs):
        if fitting and wanted(args[0]):
            counts[name] += 1
        return function(*args, **kwargs)

    return call


def is_one_integer(tensor):
    return tensor.numel() == 1 and tensor.dtype == torch.int64


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()

    def on_train_epoch_start(self):
        global fitting
        fitting = True

    def on_train_epoch_end(self):
        global fitting
        fitting = False

    def on_before_optimizer_step(self, optimizer):
        counts["updates"] += 1

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    torch.distributed.broadcast = counted(torch.distributed.broadcast, "broadcasts", is_one_integer)
    torch.Tensor.item = counted(torch.Tensor.item, "reads", is_one_integer)
    data = torch.utils.data.TensorDataset(torch.ones(2 * BATCHES * PROCESSES, 4))
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=PROCESSES, max_epochs=1, accumulate_grad_batches=ACCUMULATED, **options
    )
    trainer.fit(Network(), torch.utils.data.DataLoader(data, 2))
    own = BATCHES if PROCESSES > 1 else 0
    assert counts == {"broadcasts": own, "reads": own, "updates": BATCHES // ACCUMULATED}, counts
    if trainer.global_rank == 0:
        print("lightning", lightning.__version__, "torch", torch.__version__, PROCESSES, "processes:", counts)
PY
cd "$folder"
for processes in 1 2; do
    venv/bin/python -W ignore check.py "$processes" 2> errors || { cat errors; exit 1; }
done
