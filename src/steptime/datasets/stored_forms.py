"""Stored forms of a folder of images, in fewer and larger files: decoded pixels, tar shards, TFRecord, RecordIO.

A form is made once, in the cache or where the user asks for it: complete under its name, or not there at all. Its
``index.json`` has the files, classes and sizes of the folder's index, in the same order, and where each image lies; the
form carries its images with it, and the folder is not needed any more. Docs/loaders.md lists which loader reads which.

The entries of two formats of records, written without their libraries: TFRecord and RecordIO.

TFRecord is a length, the masked CRC-32C of the length, the content and its masked CRC-32C, all little-endian; the
content is a ``tf.train.Example`` in the encoding of protocol buffers. RecordIO is a magic number, a length, and content
padded to four bytes; where the content has the magic number at a multiple of four bytes, it is cut there into parts.
"""

import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from steptime.datasets.atomic_writes import partial_folder, put_in_place, require_space, require_unchanged
from steptime.datasets.dataset import Dataset
from steptime.errors import DatasetError, choices_message
from steptime.units import format_bytes

_TOGETHER = 256
"""Records whose checksums are computed at once."""


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_TABLE = _crc_table()


def checksums(contents: list[bytes]) -> list[int]:
    """Return the CRC-32C (Castagnoli) of each content, byte by byte but for all of them at once.

    Shorter ones are filled up in front: a state of zero passes zeros unchanged, and the initial state, all ones, enters
    with the first four bytes.
    """
    longest = max(4, *map(len, contents))
    table = np.zeros((longest, len(contents)), dtype=np.uint8)
    for column, content in enumerate(contents):
        whole = np.zeros(max(4, len(content)), dtype=np.uint8)
        whole[: len(content)] = np.frombuffer(content, dtype=np.uint8)
        if len(content) < 4:  # noqa: PLR2004 - bytes of the state
            message = "a record of less than four bytes has no checksum here"
            raise ValueError(message)
        whole[:4] ^= 0xFF
        table[longest - len(whole) :, column] = whole
    state = np.zeros(len(contents), dtype=np.uint32)
    for row in table:
        state = (state >> np.uint32(8)) ^ _TABLE[(state ^ row) & np.uint32(0xFF)]
    return [int(each) ^ 0xFFFFFFFF for each in state]


def _masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message that has a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _feature(name: str, kind: int, content: bytes) -> bytes:
    """Return an entry of the map of features: its name, and a list of one value of a kind."""
    return _field(1, _field(1, name.encode()) + _field(2, _field(kind, _field(1, content))))


def tfrecord_example(index: int, label: int, image: bytes) -> bytes:
    """Return a ``tf.train.Example`` with ``image/encoded``, ``image/class/label`` and ``index``."""
    bytes_list, int64_list = 1, 3
    return _field(
        1,
        _feature("image/encoded", bytes_list, image)
        + _feature("image/class/label", int64_list, _varint(label))
        + _feature("index", int64_list, _varint(index)),
    )


def tfrecord_entries(samples: Iterable[tuple[int, int, bytes]]) -> Iterator[bytes]:
    """Yield the entry of each sample: its index, label and image file."""
    left = iter(samples)
    while together := [tfrecord_example(*sample) for sample in islice(left, _TOGETHER)]:
        lengths = [struct.pack("<Q", len(each)) for each in together]
        for content, length, of_length, of_content in zip(
            together, lengths, checksums(lengths), checksums(together), strict=True
        ):
            masks = [struct.pack("<I", _masked(each)) for each in (of_length, of_content)]
            yield b"".join([length, masks[0], content, masks[1]])


_MAGIC = struct.pack("<I", 0xCED7230A)
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


def recordio_entry(index: int, label: int, image: bytes) -> bytes:
    """Return the entry of an image file: MXNet's header of flag, label, and number, then the file."""
    parts = _split(struct.pack("<IfQQ", 0, float(label), index, 0) + image)
    flags = [_WHOLE] if len(parts) == 1 else [_FIRST, *[_MIDDLE] * (len(parts) - 2), _LAST]
    entry = []
    for flag, part in zip(flags, parts, strict=True):
        padding = b"\0" * (-len(part) % 4)
        entry.append(_MAGIC + struct.pack("<I", flag << 29 | len(part)) + part + padding)
    return b"".join(entry)


def _split(content: bytes) -> list[bytes]:
    """Cut content at every magic number that begins at a multiple of four bytes; the number itself is left out."""
    parts, begin, found = [], 0, content.find(_MAGIC)
    while found >= 0:
        if found % 4 == 0:
            parts.append(content[begin:found])
            begin = found + 4
            found = content.find(_MAGIC, begin)
        else:
            found = content.find(_MAGIC, found + 1)
    return [*parts, content[begin:]]


SCHEMA = 1
"""Of a form's index: another one makes every form anew."""
FormName = Literal["decoded", "tar_shards", "tfrecord", "recordio"]
Progress = Callable[[int, int], None]
"""Called with how many images are stored, and how many there are."""

_SHARDS = 64
"""At least, where there are as many images: workers take whole shards in a random order."""
_SHARD_BYTES = 256 * 2**20
"""At most, about."""


@dataclass(frozen=True)
class _Source:
    """The folder that is stored, by its index."""

    root: Path
    index: Mapping[str, Any]

    @property
    def files(self) -> list[tuple[str, int]]:
        return [(name, label) for name, label in self.index["files"]]

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


Writer = Callable[[_Source, Path, Callable[[], None]], dict[str, Any]]
"""Writes the files of a form into a folder, calls back after each image, and returns its fields of the index."""


@dataclass(frozen=True)
class StoredForm:
    """One form: how large it will be, and how it is written."""

    name: FormName
    summary: str
    size: Callable[[_Source, int], int]
    """Bytes of the form, from the folder's index and the bytes of its files."""
    write: Writer


def shard_members(count: int, total_bytes: int) -> list[list[int]]:
    """Return which images each shard holds, in their order there.

    Images are dealt out at random, always alike: an index is sorted by class, and shards of one class each would make
    batches of one class.
    """
    shards = min(count, max(_SHARDS, -(-total_bytes // _SHARD_BYTES)))
    order = np.random.RandomState(0).permutation(count)
    return [part.tolist() for part in np.array_split(order, shards)]


def _write_decoded(source: _Source, folder: Path, stored: Callable[[], None]) -> dict[str, Any]:
    with (folder / "pixels.bin").open("wb") as pixels:
        for name, _ in source.files:
            try:
                with Image.open(source.root / name, formats=("JPEG", "PNG")) as image:
                    pixels.write(np.asarray(image.convert("RGB")).tobytes())
            except OSError as error:
                if error.errno is not None:
                    raise
                message = f"{source.root / name} cannot be decoded: {error}; replace or delete it, and run again"
                raise DatasetError(message) from error
            stored()
    return {}


def _shards(source: _Source, folder: Path, ending: str) -> Iterator[tuple[int, Path, list[int]]]:
    total = sum((source.root / name).stat().st_size for name, _ in source.files)
    for shard, members in enumerate(shard_members(len(source.files), total)):
        yield shard, folder / f"shard-{shard:06d}.{ending}", members


def _write_tar(source: _Source, folder: Path, stored: Callable[[], None]) -> dict[str, Any]:
    """Two members an image, as WebDataset wants them: ``000012.jpg``, and its class in ``000012.cls``."""
    places = [(0, 0, 0)] * len(source.files)
    names = []
    for shard, path, members in _shards(source, folder, "tar"):
        names.append(path.name)
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for index in members:
                name, label = source.files[index]
                content = source.read(name)
                member = _add(archive, f"{index:09d}{Path(name).suffix.lower()}", content)
                places[index] = (shard, member, len(content))
                _add(archive, f"{index:09d}.cls", str(label).encode())
                stored()
    return {"shards": names, "places": places}


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> int:
    """Add a member, the same bytes every time, and return where its content begins."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    begin = archive.offset + tarfile.BLOCKSIZE
    archive.addfile(member, io.BytesIO(content))
    return begin


def _write_tfrecord(source: _Source, folder: Path, stored: Callable[[], None]) -> dict[str, Any]:
    names, counts, order = [], [], []
    for _, path, members in _shards(source, folder, "tfrecord"):
        names.append(path.name)
        counts.append(len(members))
        order += members
        with path.open("wb") as file:
            samples = ((index, source.files[index][1], source.read(source.files[index][0])) for index in members)
            for entry in tfrecord_entries(samples):
                file.write(entry)
                stored()
    return {"shards": names, "counts": counts, "order": order}


def _write_recordio(source: _Source, folder: Path, stored: Callable[[], None]) -> dict[str, Any]:
    members = shard_members(len(source.files), 0)
    with (folder / "images.rec").open("wb") as file, (folder / "images.idx").open("w", encoding="ascii") as places:
        for index in (each for shard in members for each in shard):
            name, label = source.files[index]
            places.write(f"{index}\t{file.tell()}\n")
            file.write(recordio_entry(index, label, source.read(name)))
            stored()
    return {"order": [index for shard in members for index in shard]}


def _pixels(source: _Source, _: int) -> int:
    return sum(3 * width * height for width, height in source.index["sizes"])


STORED_FORMS: Mapping[str, StoredForm] = {
    form.name: form
    for form in (
        StoredForm("decoded", "the pixels of every image, one after the other", _pixels, _write_decoded),
        StoredForm("tar_shards", "WebDataset's shards", lambda s, total: total + 2560 * len(s.files), _write_tar),
        StoredForm("tfrecord", "TFRecord shards", lambda s, total: total + 96 * len(s.files), _write_tfrecord),
        StoredForm("recordio", "MXNet's RecordIO", lambda s, total: total + 48 * len(s.files), _write_recordio),
    )
}


def form_named(name: str) -> StoredForm:
    """Return a stored form; raises DatasetError with the choices for an unknown name."""
    if name not in STORED_FORMS:
        raise DatasetError(choices_message("stored form", name, STORED_FORMS))
    return STORED_FORMS[name]


def stored_bytes(dataset: Dataset, form: str) -> int:
    """Return about how many bytes a form of a folder of images takes on disk."""
    return form_named(form).size(_source(dataset), dataset.bytes)


def stored_folder(dataset: Dataset, form: str, cache: Path) -> Path:
    """Return where a form of a dataset lies in the cache, made or not; a folder that changed gets another place."""
    digest = hashlib.sha256(f"{SCHEMA}\0{form}\0{dataset.path}\0{dataset.bytes}\0".encode())
    digest.update(_index_path(dataset).read_bytes())
    name = "".join(each if each.isalnum() or each in "-_" else "-" for each in Path(dataset.name).name)
    return cache / "datasets" / f"{name}-{form}-{digest.hexdigest()[:12]}"


def find_stored(dataset: Dataset, form: str, folder: Path) -> Dataset | None:
    """Return the form of a dataset in ``folder``; None if it is not there, or not whole."""
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        # What was added to the folder since does not count.
        sizes = {name: (folder / name).stat().st_size for name in index["bytes"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if index.get("schema") != SCHEMA or index.get("form") != form or index["bytes"] != sizes:
        return None
    return Dataset(
        name=dataset.name,
        form=form_named(form).name,
        path=folder.absolute(),
        index=folder.absolute() / "index.json",
        samples=dataset.samples,
        class_names=dataset.class_names,
        input_shape=None,
        bytes=sum(sizes.values()),
    )


def store(dataset: Dataset, form: str, folder: Path, progress: Progress = lambda _done, _all: None) -> Dataset:
    """Return a form of a folder of images at ``folder``, made if it is not there yet.

    Raises DatasetError when the disk has no room for it or is full before the end, something else lies there, or an
    image cannot be decoded; nothing is left then.
    """
    if made := find_stored(dataset, form, folder):
        return made
    folder = folder.absolute()
    own = _own_files(folder)
    if folder.exists() and any(folder.iterdir()):
        if not own:
            message = f"{folder} holds something already; name an empty folder, or one that does not exist yet"
            raise DatasetError(message)
        require_unchanged(folder, own)
    size = stored_bytes(dataset, form)
    try:
        with partial_folder(folder) as partial:
            require_space(dataset.name, folder, size, form)
            _fill(dataset, form_named(form), partial, progress)
            put_in_place(partial, folder, own)
    except OSError as error:
        message = (
            f"{dataset.name} cannot be stored as {form} in {folder}, which takes about {format_bytes(size)}: "
            f"{error.strerror or error}; free space there, or choose another folder"
        )
        raise DatasetError(message) from error
    made = find_stored(dataset, form, folder)
    if made is None:
        message = (
            f"{dataset.name} was stored as {form}, but {folder} has changed since; is something else writing there?"
        )
        raise DatasetError(message)
    return made


def _own_files(folder: Path) -> set[str]:
    """Return the names of the files that ``store`` made in a folder earlier; empty if its index is not one of ours."""
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        return {"index.json", *index["bytes"]} if index["form"] in STORED_FORMS else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _fill(dataset: Dataset, form: StoredForm, folder: Path, progress: Progress) -> None:
    source, done = _source(dataset), 0

    def stored() -> None:
        nonlocal done
        done += 1
        progress(done, dataset.samples)

    fields = form.write(source, folder, stored)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    index = {key: source.index[key] for key in ("files", "classes", "sizes")}
    content = {"schema": SCHEMA, "form": form.name, "bytes": sizes, **index, **fields}
    (folder / "index.json").write_text(json.dumps(content), encoding="utf-8")


def _index_path(dataset: Dataset) -> Path:
    if dataset.index is None or dataset.form != "image_folder":
        message = f"{dataset.name} is not a folder of images, so that it has no other stored form"
        raise DatasetError(message)
    return dataset.index


def _source(dataset: Dataset) -> _Source:
    return _Source(dataset.path, json.loads(_index_path(dataset).read_text(encoding="utf-8")))
