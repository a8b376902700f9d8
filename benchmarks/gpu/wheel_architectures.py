"""Print for which GPU architectures the compiled code of a wheel was made.

::

    python benchmarks/gpu/wheel_architectures.py WHEEL_OR_LIBRARY…
    python benchmarks/gpu/wheel_architectures.py --locked    # fetch what benchmarks/gpu/wheels.csv lacks, and add it

``wheels.csv`` has every locked wheel with GPU code; tests hold the frameworks' manifests against it.

A library keeps its GPU code in fat binaries (the ELF section ``.nv_fatbin``): machine code for one architecture
(``sm_80`` runs on compute capability 8.0 and on later ones of the same major number) and intermediate code
(``compute_80``, PTX), which a driver that knows its version compiles for every later architecture. The format of a fat
binary is that of the
struct ``fatBinaryHeader`` in ``fatbinary_section.h`` of the CUDA toolkit; the head of each piece in it is not
documented, and was read off against ``cuobjdump``.
"""

import csv
import hashlib
import mmap
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent
FRAMEWORKS = _HERE.parents[1] / "src/steptime/frameworks"
TABLE = _HERE / "wheels.csv"
_FIELDS = ("distribution", "version", "sha256", "library", "machine_code", "intermediate_code", "ptx")
"""Code as ``70x249 80x249``, the pieces for each architecture; ``ptx`` is the newest version of PTX, as ``8.5``."""
_OF_FRAMEWORKS = ("torch", "tensorflow", "jax-cuda12-plugin", "jax-cuda12-pjrt", "cupy-cuda12x", "mxnet-cu112")
_PLATFORMS = (*(f"manylinux_2_{minor}" for minor in range(5, 36)), "manylinux2014", "manylinux2010", "manylinux1")

_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")
"""Magic, version, bytes of the header, bytes of the pieces."""
_PIECE = struct.Struct("<HHIQIIHHI")
"""Kind, unknown, bytes of this head, bytes behind it, two unknown numbers, version (minor, major), architecture."""
_INTERMEDIATE, _MACHINE = 1, 2
_SUFFIXES = (".so", ".whl", ".deb")


class Piece(NamedTuple):
    """One piece of GPU code."""

    kind: int
    architecture: int
    """As 80."""
    version: tuple[int, int]
    """Of PTX, where it is intermediate code."""

    def __str__(self) -> str:
        """Return ``sm_80`` or ``compute_80``."""
        return f"{'sm' if self.kind == _MACHINE else 'compute'}_{self.architecture}"


def pieces(content: mmap.mmap | bytes) -> Iterator[Piece]:
    """Yield the pieces of GPU code in a library."""
    at = content.find(_MAGIC)
    while at >= 0:
        _, version, head, size = _HEADER.unpack_from(content, at)
        end = at + head + size
        if version != 1 or head != _HEADER.size or end > len(content):
            at = content.find(_MAGIC, at + 1)
            continue
        place = at + head
        while place + _PIECE.size <= end:
            kind, _, own, behind, _, _, minor, major, architecture = _PIECE.unpack_from(content, place)
            if kind not in {_INTERMEDIATE, _MACHINE} or not own:
                break
            yield Piece(kind, architecture, (major, minor))
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


def code_of(file: Path) -> list[Piece]:
    """Return the pieces of GPU code in a library."""
    if not file.stat().st_size:
        return []
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return list(pieces(content))


def pinned(lock: Path) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yield distribution, version, digests and Pythons of each package of a lock that can have GPU code."""
    text = lock.read_text()
    pythons = re.findall(r"3\.\d+", next(line for line in text.splitlines() if line.startswith("# pythons:")))
    for name, version, rest in re.findall(r"^([\w.-]+)==(\S+)(.*(?:\n    .*)*)", text, re.MULTILINE):
        if name.startswith("nvidia-") or name in _OF_FRAMEWORKS:
            yield name, version, re.findall(r"sha256:(\w+)", rest), pythons


def read_table() -> list[dict[str, str]]:
    """Return the rows of ``wheels.csv``."""
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def add_locked() -> None:
    """Fetch one after the other the locked wheels that the table lacks, and add a row for each library of theirs."""
    rows = read_table() if TABLE.exists() else []
    known = {(row["distribution"], row["version"]) for row in rows}
    for lock in sorted(FRAMEWORKS.glob("*/requirements-*cuda*.lock")):
        for name, version, digests, pythons in pinned(lock):
            if (name, version) not in known:
                rows += _fetched(name, version, digests, pythons)
                known.add((name, version))
                rows.sort(key=lambda row: tuple(row.values()))
                with TABLE.open("w", newline="") as file:
                    table = csv.DictWriter(file, _FIELDS, lineterminator="\n")
                    table.writeheader()
                    table.writerows(rows)


def _fetched(name: str, version: str, digests: list[str], pythons: list[str]) -> list[dict[str, str]]:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += [f"--platform={platform}_x86_64" for platform in _PLATFORMS]
        command += [f"--python-version={pythons[0]}", f"--dest={scratch}", f"{name}=={version}"]
        subprocess.run(command, check=True)
        (wheel,) = Path(scratch).iterdir()
        with wheel.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest not in digests:
            message = f"{wheel.name} is not the file that is locked"
            raise ValueError(message)
        found = [(Path(library).name, code_of(file)) for library, file in libraries(wheel)]
    rows = [
        (name, version, digest, library, _counted(code, _MACHINE), _counted(code, _INTERMEDIATE), _newest_ptx(code))
        for library, code in found
        if code
    ]
    return [dict(zip(_FIELDS, row, strict=True)) for row in rows or [(name, version, digest, "", "", "", "")]]


def _counted(code: list[Piece], kind: int) -> str:
    counts = Counter(piece.architecture for piece in code if piece.kind == kind)
    return " ".join(f"{architecture}x{count}" for architecture, count in sorted(counts.items()))


def _newest_ptx(code: list[Piece]) -> str:
    newest = max((piece.version for piece in code if piece.kind == _INTERMEDIATE), default=())
    return ".".join(map(str, newest))


def main(paths: list[Path]) -> None:
    """Print one line per library that has GPU code."""
    for path in paths:
        for name, file in libraries(path):
            counts = Counter(code_of(file))
            if counts:
                found = ", ".join(f"{each} ({count})" for each, count in sorted(counts.items()))
                print(f"{path.name}\t{name}\t{found}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--locked"]:
        add_locked()
    else:
        main(list(map(Path, sys.argv[1:])))
