"""Print for which GPU architectures the compiled code of a wheel was made.

::

    python benchmarks/gpu/wheel_architectures.py WHEEL_OR_LIBRARY…

A library keeps its GPU code in fat binaries (the ELF section ``.nv_fatbin``): machine code for one architecture
(``sm_80`` runs on compute capability 8.0 and on later ones of the same major number) and intermediate code
(``compute_80``, PTX), which a driver compiles for every later architecture. The format of a fat binary is that of the
struct ``fatBinaryHeader`` in ``fatbinary_section.h`` of the CUDA toolkit; the head of each piece in it is not
documented, and was read off against ``cuobjdump``.
"""

import mmap
import struct
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")
"""Magic, version, bytes of the header, bytes of the pieces."""
_PIECE = struct.Struct("<HHIQIIHHI")
"""Kind, an unknown number, bytes of this head, bytes behind it, two unknown numbers, PTX version, architecture."""
_KINDS = {1: "compute", 2: "sm"}
_SUFFIXES = (".so", ".whl", ".deb")


def pieces(content: mmap.mmap | bytes) -> Iterator[str]:
    """Yield the architecture of each piece of GPU code in a library, as ``sm_80`` or ``compute_80``."""
    at = content.find(_MAGIC)
    while at >= 0:
        _, version, head, size = _HEADER.unpack_from(content, at)
        end = at + head + size
        if version != 1 or head != _HEADER.size or end > len(content):
            at = content.find(_MAGIC, at + 1)
            continue
        place = at + head
        while place + _PIECE.size <= end:
            kind, _, own, behind, *_, architecture = _PIECE.unpack_from(content, place)
            if kind not in _KINDS or not own:
                break
            yield f"{_KINDS[kind]}_{architecture}"
            place += own + behind
        at = content.find(_MAGIC, end)


def libraries(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each library of a wheel, and a file that holds it until the next one is asked for."""
    if path.suffix != ".whl":
        yield path.name, path
        return
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as scratch:
        for name in wheel.namelist():
            if ".so" in Path(name).name:
                found = Path(wheel.extract(name, scratch))
                yield name, found
                found.unlink()


def main(paths: list[Path]) -> None:
    """Print one line per library that has GPU code."""
    for path in paths:
        for name, file in libraries(path):
            if not file.stat().st_size:
                continue
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                counts = Counter(pieces(content))
            if counts:
                ordered = sorted(counts, key=lambda each: (each.split("_")[0], int(each.split("_")[1])))
                print(f"{path.name}\t{name}\t{', '.join(f'{each} ({counts[each]})' for each in ordered)}")


if __name__ == "__main__":
    main(list(map(Path, sys.argv[1:])))
