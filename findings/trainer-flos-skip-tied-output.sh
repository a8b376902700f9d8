#!/bin/sh
# transformers 5.24.0: total_flos of trainer_state.json leaves the output layer out where its weights are tied to
# the embedding, as GPT-2's are.
# Tied or not, a step multiplies the same matrices, the output layer's among them. With a large vocabulary beside a
# small network the utilisation made of total_flos is several times too low, and untying appears to raise it.
# Seen: for 128 tokens 76873728 operations tied and 322633728 untied; torch counts 324403200 in both.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.24.0 accelerate==1.15.0
cat > "$folder/check.py" <<'PY'
import tempfile

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

transformers.logging.set_verbosity_error()
BATCH, LENGTH = 8, 16


def counted(tied):
    """Return the operations of one step: by the trainer's state, and by torch."""
    sizes = {"vocab_size": 5000, "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": LENGTH}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, tie_word_embeddings=tied))
    words = torch.arange(LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=1,
            per_device_train_batch_size=BATCH,
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
            save_strategy="no",
        )
        trainer = Trainer(model, arguments, train_dataset=[{"input_ids": words, "labels": words}] * BATCH)
        trainer.train()
    batch = words.expand(BATCH, LENGTH)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=batch, labels=batch).loss.backward()
    return trainer.state.total_flos, counter.get_total_flops()


tied, untied = counted(True), counted(False)
print("transformers", transformers.__version__, "operations tied %d of %d," % tied, "untied %d of %d" % untied)
assert tied[1] == untied[1], (tied, untied)
assert tied[0] < 0.3 * tied[1] and 0.95 < untied[0] / untied[1] < 1.05, (tied, untied)
PY
cd "$folder"
venv/bin/python -W ignore check.py
