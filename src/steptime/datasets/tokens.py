"""The rows of tokens that a user's text is made into, once, in the cache: shuffled documents and an end behind each.

A row is a file of uint16, as nanoGPT writes it; workers cut sequences of their workload's length out of it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from steptime.datasets.atomic_writes import open_new, partial_folder, put_in_place, require_space
from steptime.datasets.corpus import BYTES, TOKEN_TYPE, Corpus, CorpusPart, documents_of
from steptime.datasets.dataset import Dataset
from steptime.datasets.layouts import TRAINING, VALIDATION
from steptime.errors import DatasetError

SCHEMA = 1
"""Of a folder of rows: another one makes every row anew."""
_SEED = 0
"""Of the order of documents."""
_COPIED = 2**24
"""Tokens at once."""

TOKENIZER = Path(__file__).parent / "makers" / "bpe.py"
"""The program that trains a tokenizer."""
TOKENIZER_REQUIREMENTS = TOKENIZER.parent / "requirements-bpe.txt"
TOKENIZER_VERIFY = "import tokenizers"

Tokenizer = Callable[[Path, int], None]
"""Makes ``PART.bin`` of each ``PART.jsonl``, a document a line, in a folder, by a vocabulary of so many tokens."""


def row_folder(corpus: Corpus, cache: Path) -> Path:
    """Return where the rows of a corpus lie in the cache, made or not; text that changed gets another place."""
    digest = hashlib.sha256(f"{SCHEMA}\0{corpus.address}\0{corpus.reading.name}".encode()).hexdigest()[:12]
    name = "".join(each if each.isalnum() or each in "-_" else "-" for each in Path(corpus.name).name)
    return cache / "datasets" / f"{name}-tokens-{digest}"


def find_rows(corpus: Corpus, cache: Path) -> Dataset | None:
    """Return the dataset of a corpus whose rows are made; None if they are not there, or not whole."""
    folder = row_folder(corpus, cache)
    try:
        sizes = json.loads((folder / "index.json").read_text(encoding="utf-8"))["bytes"]
        whole = sizes == {name: (folder / name).stat().st_size for name in sizes}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not whole:
        return None
    validation = _dataset(corpus, VALIDATION[0], corpus.validation, folder) if corpus.validation else None
    return replace(_dataset(corpus, TRAINING, corpus.training, folder), validation=validation, left_out=corpus.left_out)


def _dataset(corpus: Corpus, name: str, part: CorpusPart, folder: Path) -> Dataset:
    path = folder / f"{name}.bin"
    return Dataset(
        name=corpus.name,
        form="tokens",
        path=path.absolute(),
        index=None,
        samples=path.stat().st_size // TOKEN_TYPE.itemsize,
        class_names=tuple(map(str, range(corpus.vocabulary or 0))),
        input_shape=None,
        bytes=path.stat().st_size,
        documents=part.documents,
    )


def make_rows(corpus: Corpus, cache: Path, tokenizer: Tokenizer) -> Dataset:
    """Return the dataset of a corpus; its rows are made where they are not there yet.

    Raises DatasetError where they cannot be written, or a file has changed since the corpus was looked through.
    """
    if made := find_rows(corpus, cache):
        return made
    folder = row_folder(corpus, cache)
    parts = {TRAINING: corpus.training, **({VALIDATION[0]: corpus.validation} if corpus.validation else {})}
    need = sum((corpus.length_of(part) or part.length) * TOKEN_TYPE.itemsize for part in parts.values())
    try:
        require_space(corpus.name, folder, need)
        with partial_folder(folder) as partial:
            for name, part in parts.items():
                _write(corpus, part, partial / name)
            if corpus.reading.tokens == "bpe":
                tokenizer(partial, corpus.reading.trained_vocabulary)
                for name in parts:
                    (partial / f"{name}.jsonl").unlink()
            sizes = {path.name: path.stat().st_size for path in partial.iterdir()}
            (partial / "index.json").write_text(json.dumps({"schema": SCHEMA, "bytes": sizes}), encoding="utf-8")
            if find_rows(corpus, cache) is None:
                put_in_place(partial, folder, {"index.json", "tokenizer.json", *sizes})
    except OSError as error:
        if made := find_rows(corpus, cache):  # by another run, meanwhile
            return made
        message = (
            f"the tokens of {corpus.name} cannot be written to {folder}: {error.strerror or error}; free space there, "
            "or set STEPTIME_CACHE elsewhere"
        )
        raise DatasetError(message) from error
    made = find_rows(corpus, cache)
    if made is None:
        message = (
            f"the tokens of {corpus.name} were made, but {folder} has changed since; is something else writing there?"
        )
        raise DatasetError(message)
    return made


def mapped_row(dataset: Dataset, cache: Path) -> Dataset:
    """Return a dataset of tokens whose file can be mapped into memory; it is made in the cache where there is none."""
    if dataset.path.suffix != ".npz":
        return dataset
    path = cache / "datasets" / "rows" / f"{dataset.path.parent.name}.bin"
    with np.load(dataset.path, allow_pickle=False) as file:
        tokens = file["tokens"].astype(TOKEN_TYPE)
    if not path.exists() or path.stat().st_size != tokens.nbytes:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_new(path) as row:
            row.write(tokens.tobytes())
    return replace(dataset, path=path.absolute(), bytes=tokens.nbytes)


def _write(corpus: Corpus, part: CorpusPart, path: Path) -> None:
    """Write the row of a part, or the documents that a tokenizer makes it of."""
    if corpus.of_tokens:
        with path.with_suffix(".bin").open("wb") as row:
            for file in part.files:
                tokens = np.memmap(corpus.folder / file, TOKEN_TYPE, "r")
                for start in range(0, len(tokens), _COPIED):
                    row.write(tokens[start : start + _COPIED].tobytes())
    elif corpus.reading.tokens == "bpe":
        with path.with_suffix(".jsonl").open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(each.decode()) + "\n" for each in _shuffled(corpus, part))
    else:
        with path.with_suffix(".bin").open("wb") as row:
            for document in _shuffled(corpus, part):
                row.write(np.frombuffer(document, np.uint8).astype(TOKEN_TYPE).tobytes())
                row.write(np.array([BYTES], TOKEN_TYPE).tobytes())


def _shuffled(corpus: Corpus, part: CorpusPart) -> Iterator[bytes]:
    documents = list(documents_of(corpus, part))
    return (documents[each] for each in np.random.RandomState(_SEED).permutation(len(documents)))
