"""The entries of two formats of records, written without their libraries: TFRecord and RecordIO.

TFRecord is a length, the masked CRC-32C of the length, the content and its masked CRC-32C, all little-endian; the
content is a ``tf.train.Example`` in the encoding of protocol buffers. RecordIO is a magic number, a length, and content
padded to four bytes; where the content has the magic number at a multiple of four bytes, it is cut there into parts.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

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
