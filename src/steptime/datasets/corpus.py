"""A user's own text: files of text, of JSON lines or of tokens, looked through before a framework meets one of them.

Bad text is found before anything is launched, all of a folder at once. What the text is made into is in ``tokens.py``.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from steptime.datasets.atomic_writes import keep_index
from steptime.datasets.dataset import Contents, Counts, LeftOut, left_out_of
from steptime.datasets.folder_entries import cannot_be_read, entries_of, require_links, unused_of
from steptime.datasets.layouts import TRAINING, VALIDATION
from steptime.errors import DatasetError
from steptime.synonyms import where_path_ends
from steptime.units import format_bytes

Tokens = Literal["bytes", "bpe"]
BYTES = 256
"""Of which text is made; the token behind them ends a document."""
USUAL_VOCABULARY = 4096
"""Of a tokenizer that is trained on the text."""
TOKEN_TYPE = np.dtype("<u2")
"""Of a file of tokens, as nanoGPT writes it."""
MOST_TOKENS = 2**16
_TEXT, _LINES, _TOKENS = ".txt", ".jsonl", ".bin"
ENDINGS = (_TEXT, _LINES, _TOKENS)
_MOST_TEXT = 2 * 2**30
"""Bytes of a corpus that is made into tokens: documents are shuffled in memory."""
_LISTED = 10
_INDEX_FORM = b"corpus 1: parts, largest, left out\0"
# Hugging Face's exports name shards train-00000-of-00004.
_SHARD = re.compile(rf"({TRAINING}|{'|'.join(VALIDATION)})([-_.]?\d.*)?\.[a-z]+", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """How a workload reads text: the keys of a study."""

    tokens: Tokens = "bytes"
    vocabulary: int | None = None
    """Tokens of a tokenizer that is trained, or that files of tokens may hold."""
    text_field: str = "text"
    """Of a line of JSON."""

    @property
    def trained_vocabulary(self) -> int:
        """How many tokens the tokenizer that is trained has, the end of a document among them."""
        return self.vocabulary or USUAL_VOCABULARY

    @property
    def name(self) -> str | None:
        """What a trial's configuration has; None for bytes of the usual field."""
        made = f"bpe {self.trained_vocabulary}" if self.tokens == "bpe" else "bytes"
        of_field = "" if self.text_field == "text" else f" of the field {self.text_field}"
        return None if made == "bytes" and not of_field else made + of_field


@dataclass(frozen=True)
class CorpusPart:
    """The files that are trained on, or validated on."""

    files: tuple[str, ...]
    """Relative to the corpus' folder, sorted."""
    documents: int
    length: int
    """Bytes of text, or of files of tokens how many tokens."""


@dataclass(frozen=True)
class Largest:
    """The largest token of files of tokens."""

    token: int
    file: str
    place: int
    """Tokens before it."""


@dataclass(frozen=True)
class Corpus:
    """A folder of text or a file, that has been looked through."""

    name: str
    """As the user wrote it."""
    folder: Path
    reading: Reading
    training: CorpusPart
    validation: CorpusPart | None
    largest: Largest | None
    """None of text."""
    left_out: tuple[LeftOut, ...]
    address: str
    """A hash of what it was read from, and how."""

    @property
    def of_tokens(self) -> bool:
        """Whether its files hold tokens, not text."""
        return self.largest is not None

    @property
    def vocabulary(self) -> int | None:
        """How many tokens a workload distinguishes; None if files of tokens leave that to the workload."""
        if self.of_tokens:
            return self.reading.vocabulary
        return self.reading.trained_vocabulary if self.reading.tokens == "bpe" else BYTES + 1

    @property
    def contents(self) -> Contents | None:
        """What is used and what is not; None if a tokenizer must be trained for that."""
        counts = [self.length_of(part) for part in (self.training, self.validation) if part]
        if None in counts:
            return None
        training, validation = [*(each or 0 for each in counts), 0][:2]
        return Contents(training, self.vocabulary or 0, validation, self.left_out, self.training.documents)

    def length_of(self, part: CorpusPart) -> int | None:
        """Return how many tokens a part has; None if a tokenizer must be trained for that."""
        if self.of_tokens:
            return part.length
        return None if self.reading.tokens == "bpe" else part.length + part.documents


def scan_corpus(name: str, cache: Path, reading: Reading) -> Corpus:
    """Return the corpus ``name``, a file or a folder, looked through.

    A folder has the files of ``ENDINGS``; or files or folders ``train``, and ``validation`` beside.

    Args:
        name: as the user wrote it.
        cache: the user's cache folder, where what was found is kept until a file changes.
        reading: how it is read.

    Raises DatasetError, which names every file that cannot be used, and where it is wrong.
    """
    place = Path(name).expanduser().absolute()
    parts, left_out = _parts(name, place)
    folder = place if place.is_dir() else place.parent
    faults = _faults_of_names(folder, parts, whole_folder=place.is_dir())
    of_tokens = all(each.lower().endswith(_TOKENS) for files in parts.values() for each in files)
    if not of_tokens and any(each.lower().endswith(_TOKENS) for files in parts.values() for each in files):
        faults.append(f"{place}: has text and files of tokens, which no vocabulary has both of; move one of them away")
    elif wrong := _wrong_reading(reading, of_tokens=of_tokens):
        faults.append(f"{place}: {wrong}")
    if faults:
        raise DatasetError(_in_words(name, faults))
    kept, address = _index_path(folder, parts, cache, reading, of_tokens=of_tokens)
    if not kept.exists():
        keep_index(kept, _looked_through(name, folder, parts, reading, of_tokens=of_tokens))
    content = json.loads(kept.read_text(encoding="utf-8"))
    left_out += Counter({("empty_document", ""): content["empty"]})
    found = {
        each: CorpusPart(tuple(part["files"]), part["documents"], part["length"]) for each, part in content["parts"]
    }
    return Corpus(
        name=name,
        folder=folder,
        reading=reading,
        training=found[TRAINING],
        validation=found.get(VALIDATION[0]),
        largest=Largest(**content["largest"]) if content["largest"] else None,
        left_out=left_out_of(left_out),
        address=address,
    )


def documents_of(corpus: Corpus, part: CorpusPart) -> Iterator[bytes]:
    """Yield the documents of text, UTF-8: a file each, or a line of JSON each; empty lines are passed over.

    Raises DatasetError where a file has changed since the corpus was looked through, and is wrong now.
    """
    for file in part.files:
        found, faults = _read(corpus.folder / file, corpus.reading.text_field)
        if faults:
            raise DatasetError(_in_words(corpus.name, faults))
        yield from filter(None, found)


def _single_file(name: str, place: Path) -> str:
    """Return the name of a file that is a dataset by itself; raises DatasetError where it is none."""
    if not place.exists():
        message = f"no file or folder {place} for the dataset {name}; {where_path_ends(place)}"
        raise DatasetError(message)
    if not place.name.lower().endswith(ENDINGS) or not place.is_file():
        message = f"the dataset {name} must be a {_listed_endings()} file, or a folder with some"
        raise DatasetError(message)
    return place.name


def _parts(name: str, place: Path) -> tuple[dict[str, list[str]], Counts]:
    """Return the files of the training and of the validation part, relative to the folder, and what is not used."""
    if not place.is_dir():
        return {TRAINING: [_single_file(name, place)]}, Counter()
    try:
        top = entries_of(place, ENDINGS)
        below = {each: entries_of(place / each, ENDINGS) for each in top.folders if each in {TRAINING, *VALIDATION}}
    except OSError as error:
        raise cannot_be_read(name, error) from error
    require_links(name, place, {each: why for each, why in top.lost.items() if each in {TRAINING, *VALIDATION}})
    named: dict[str, list[str]] = {}
    for file in top.files:
        if match := _SHARD.fullmatch(file):
            named.setdefault(match[1].lower(), []).append(file)
    for each, entries in below.items():
        named.setdefault(each, []).extend(f"{each}/{file}" for file in entries.files)
    unused = unused_of(place, top, ENDINGS)
    unused["deeper_folder", ""] -= sum(len(entries.files) for entries in below.values())
    validation = next((each for each in VALIDATION if named.get(each)), None)
    if not named.get(TRAINING):
        if not top.files:
            raise DatasetError(_nothing(name, place, +unused))
        return {TRAINING: top.files}, +unused
    parts = {TRAINING: named[TRAINING], **({VALIDATION[0]: named[validation]} if validation else {})}
    used = {file for files in parts.values() for file in files}
    unused["unused_folder", "the folder itself"] += len(set(top.files) - used)
    return parts, +unused


def _listed_endings() -> str:
    return f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


def _nothing(name: str, place: Path, unused: Mapping[Any, int]) -> str:
    deeper = "; its text lies in deeper folders: name one of them" if unused.get(("deeper_folder", "")) else ""
    return f"the dataset {name} has no {_listed_endings()} files in {place}, which a workload of tokens reads{deeper}"


def _faults_of_names(folder: Path, parts: Mapping[str, Iterable[str]], *, whole_folder: bool) -> list[str]:
    """Return what is wrong with names and links of a folder's files."""
    faults, root = [], folder.resolve()
    for file in (each for files in parts.values() for each in files):
        path = folder / file
        if file.encode(errors="surrogateescape") != file.encode(errors="replace"):
            faults.append(f"{file!r}: its name is not UTF-8; rename it")
        elif whole_folder and not (target := path.resolve()).is_relative_to(root):
            faults.append(f"{path}: leads out of the folder, to {target}; put the file here, or name its own folder")
    return faults


def _wrong_reading(reading: Reading, *, of_tokens: bool) -> str | None:
    if of_tokens and reading.tokens != "bytes":
        return f"holds tokens already; leave tokens: {reading.tokens} out"
    if not of_tokens and reading.tokens == "bytes" and reading.vocabulary is not None:
        return f"bytes have a vocabulary of {BYTES + 1}; leave vocabulary: {reading.vocabulary} out, or add tokens: bpe"
    return None


def _looked_through(
    name: str, folder: Path, parts: Mapping[str, list[str]], reading: Reading, *, of_tokens: bool
) -> dict[str, Any]:
    """Return the content of an index; raises DatasetError with the faults of all files."""
    faults: list[str] = []
    found, empty, largest = [], 0, None
    total = 0 if of_tokens else sum((folder / file).stat().st_size for files in parts.values() for file in files)
    if total > _MOST_TEXT:
        message = (
            f"the dataset {name} has {format_bytes(total)} of text, and {format_bytes(_MOST_TEXT)} at most are made "
            f"into tokens; name a part of it, or make files of tokens ({_TOKENS}), which have no limit"
        )
        raise DatasetError(message)
    for part, files in parts.items():
        documents = length = 0
        for file in files:
            if of_tokens:
                count, most, wrong = _tokens_in(folder, file, reading.vocabulary)
                documents, length = documents + 1, length + count
                largest = max(filter(None, (largest, most)), key=lambda each: each.token, default=None)
            else:
                texts, wrong = _read(folder / file, reading.text_field)
                empty += texts.count(b"")
                documents += sum(map(bool, texts))
                length += sum(map(len, texts))
            faults += wrong
        found.append((part, asdict(CorpusPart(tuple(files), documents, length))))
    if faults:
        raise DatasetError(_in_words(name, faults))
    return {"parts": found, "empty": empty, "largest": asdict(largest) if largest else None}


def _in_words(name: str, faults: list[str]) -> str:
    listed = "\n".join(f"  {each}" for each in faults[:_LISTED])
    more = f"\n  and {len(faults) - _LISTED} more" if len(faults) > _LISTED else ""
    return f"the dataset {name} cannot be read; correct this, and run again:\n{listed}{more}"


def _read(path: Path, text_field: str) -> tuple[list[bytes], list[str]]:
    """Return the documents of a file of text and what is wrong with it, with the place."""
    try:
        content = path.read_bytes()
        content.decode()
    except OSError as error:
        return [], [f"{path}: cannot be read: {error.strerror}"]
    except UnicodeDecodeError as error:
        return [], [f"{path}: is not UTF-8: byte {content[error.start]:#04x} at offset {error.start}"]
    if not content.strip():
        return [], [f"{path}: is empty"]
    if path.name.lower().endswith(_TEXT):
        return [content], []
    documents, faults = [], []
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            text = _text_of_line(line, text_field)
            if isinstance(text, bytes):
                documents.append(text)
            else:
                faults.append(f"{path}, line {number}: {text}")
    if not faults and not any(documents):
        faults.append(f"{path}: its {len(documents)} lines have no text")
    return documents, faults


def _text_of_line(line: bytes, text_field: str) -> bytes | str:
    """Return the text of a line of JSON in UTF-8, or what is wrong with the line."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return "is not JSON"
    if not isinstance(found, dict):
        return f"is JSON, but no object with a field {text_field!r}"
    if text_field not in found:
        others = f" (it has {', '.join(map(repr, list(found)[:_LISTED]))})" if found else ""
        return f"has no field {text_field!r}{others}; name the field by text_field"
    if not isinstance(found[text_field], str):
        return f"its field {text_field!r} is not text"
    try:
        return str(found[text_field]).encode()
    except UnicodeEncodeError:
        return f"its field {text_field!r} has half a surrogate pair, which is not Unicode"


def _tokens_in(folder: Path, file: str, vocabulary: int | None) -> tuple[int, Largest | None, list[str]]:
    """Return how many tokens a file holds, the largest of them, and what is wrong with the file."""
    path = folder / file
    try:
        size = path.stat().st_size
        if size == 0:
            return 0, None, [f"{path}: is empty"]
        if size % TOKEN_TYPE.itemsize:
            return 0, None, [f"{path}: has {size} bytes, an odd number; a token has two (uint16)"]
        tokens = np.memmap(path, TOKEN_TYPE, "r")
    except OSError as error:
        return 0, None, [f"{path}: cannot be read: {error.strerror}"]
    place = int(tokens.argmax())
    most = Largest(int(tokens[place]), file, place)
    if vocabulary is not None and most.token >= vocabulary:
        first = int(np.argmax(tokens >= vocabulary))
        wrong = f"{path}: token {tokens[first]} at place {first} is outside of the vocabulary of {vocabulary}"
        return len(tokens), most, [wrong]
    return len(tokens), most, []


def _index_path(
    folder: Path, parts: Mapping[str, Collection[str]], cache: Path, reading: Reading, *, of_tokens: bool
) -> tuple[Path, str]:
    """Return where the index of these files is kept, and the address of the corpus."""
    content = hashlib.sha256(
        _INDEX_FORM + f"{reading.text_field}\0{reading.vocabulary if of_tokens else ''}\0".encode()
    )
    for part, files in parts.items():
        for file in files:
            found = (folder / file).stat()
            content.update(part.encode() + b"\0" + os.fsencode(folder / file))
            content.update(b"\0%d\0%d\0" % (found.st_size, found.st_mtime_ns))
    address = content.hexdigest()[:12]
    place = hashlib.sha256(b"corpus\0" + os.fsencode(folder)).hexdigest()[:12]
    return cache / "datasets" / "indices" / f"{place}-{address}.json", address
