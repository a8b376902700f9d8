"""Train a tokenizer on documents, and make rows of tokens of them: byte-pair encoding of bytes, as GPT-2 has it.

R. Sennrich et al., *Neural machine translation of rare words with subword units*, arXiv 1508.07909; A. Radford et al.,
*Language models are unsupervised multitask learners*, 2019, for bytes instead of characters.
"""

import json
import os
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

# Several threads count pairs in an order of their own.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def documents_in(path: Path) -> Iterator[str]:
    """Yield the documents of a file that has one a line, as JSON."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def trained(path: Path, vocabulary: int) -> Tokenizer:
    """Return a tokenizer of so many tokens; the last of them is left to the end of a document."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary - 1, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(documents_in(path), trainer)
    return tokenizer


def main(folder: str, vocabulary: int) -> None:
    """Write ``tokenizer.json``, and ``PART.bin`` (uint16, little-endian) of each ``PART.jsonl``, into ``folder``."""
    place = Path(folder)
    tokenizer = trained(place / "train.jsonl", vocabulary)
    tokenizer.save(str(place / "tokenizer.json"))
    for part in sorted(place.glob("*.jsonl")):
        with part.with_suffix(".bin").open("wb") as row:
            for document in documents_in(part):
                tokens = array("H", [*tokenizer.encode(document).ids, vocabulary - 1])
                if sys.byteorder == "big":
                    tokens.byteswap()
                tokens.tofile(row)


if __name__ == "__main__":
    try:
        main(**json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{error.filename or 'the folder'}: {error.strerror or error}")
