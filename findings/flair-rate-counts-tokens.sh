#!/bin/sh
# flair 0.15.1: the "samples/sec" that its trainer logs are data points of the loss, which for a tagger are tokens:
# not sentences, in which mini_batch_size counts, and what its "samples" would be by that option.
# Seen: 64 sentences of 12 tokens an epoch: a rate for 768 samples. A classifier of the same sentences gets one for 64.
# One would guess that rates of two trainings with the same batches may be compared.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 flair==0.15.1 transformers==4.57.6
cat > "$folder/check.py" <<'PY'
import logging
import re
import sys

import flair
import torch
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.embeddings import DocumentPoolEmbeddings, OneHotEmbeddings
from flair.models import SequenceTagger, TextClassifier
from flair.trainers import ModelTrainer

SENTENCES, TOKENS = 64, 12
flair.device = torch.device("cpu")
logged = []


class Kept(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())


logging.getLogger("flair").addHandler(Kept())


def sentences():
    found = []
    for number in range(SENTENCES):
        sentence = Sentence(["even" if (number + place) % 2 == 0 else "odd" for place in range(TOKENS)])
        for token in sentence:
            token.add_label("parity", token.text)
        found.append(sentence.add_label("first", sentence[0].text))
    return FlairDatapointDataset(found)


def counted(kind):
    """Return the data points that the last logged rate of an epoch stands for: rate by time, of two decimals."""
    corpus = Corpus(train=sentences(), dev=sentences(), test=sentences())
    words = OneHotEmbeddings.from_corpus(corpus, field="text", embedding_length=8, min_freq=1)
    known = corpus.make_label_dictionary(kind, add_unk=False)
    if kind == "parity":
        model = SequenceTagger(words, known, kind, hidden_size=8, use_crf=False)
    else:
        model = TextClassifier(DocumentPoolEmbeddings([words]), kind, label_dictionary=known)
    points = []
    inner = model.forward_loss

    def forward_loss(batch):
        loss, count = inner(batch)
        points.append((len(batch), count))
        return loss, count

    model.forward_loss = forward_loss
    logged.clear()
    ModelTrainer(model, corpus).train(kind, mini_batch_size=8, max_epochs=1)
    line = [each for each in logged if "samples/sec" in each][-1]
    time, rate = (float(re.search(name + r": ([\d.]+)", line).group(1)) for name in (r"time \(sec\)", "samples/sec"))
    went = sum(count for _, count in points[: SENTENCES // 8])
    print(kind, "sentences", sum(size for size, _ in points[: SENTENCES // 8]), "counted", went, "logged:", line)
    return went, rate * time


(tagged, by_tags), (classified, by_classes) = counted("parity"), counted("first")
print("flair", flair.__version__, f"tagger: {tagged} counted, {by_tags:.0f} by the rate;", end=" ")
print(f"classifier: {classified}, {by_classes:.0f}")
near = 0.5  # since the time is logged with two decimals
sys.exit(
    (tagged, classified) != (SENTENCES * TOKENS, SENTENCES)
    or not (1 - near < by_tags / tagged < 1 + near)
    or not (1 - near < by_classes / classified < 1 + near)
)
PY
cd "$folder"
venv/bin/python -W ignore check.py
