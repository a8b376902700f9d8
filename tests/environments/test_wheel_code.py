"""Builds for CUDA are offered to the devices that the code in their locked wheels runs on, and to no others.

The table of the code was read off all these wheels by ``benchmarks/gpu/wheel_architectures.py``.
"""

import re
import struct
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from steptime.catalog.accelerators import CudaBuild
from steptime.catalog.manifest import load_manifests

sys.path.append(str(Path(__file__).parents[2] / "benchmarks/gpu"))
from wheel_architectures import Piece, pieces, pinned, read_table

BUILDS = [(name, build) for name, manifest in load_manifests().items() for build in manifest.cuda]
IDS = [f"{name}{build.suffix}" for name, build in BUILDS]
CAPABILITIES = [50, 52, 60, 61, 70, 75, 80, 86, 89, 90, 100, 103, 120, 121]
"""Of GPUs for servers and desks; 89 is compute capability 8.9."""
OWN = re.compile(r"libtorch_cuda\.so|libtensorflow_(cc|framework)|xla_cuda_plugin|libmxnet|cub\.cp|thrust\.cp")
"""Libraries of the frameworks themselves, whose kernels are all compiled for the same devices."""
USED = re.compile(r"libcublas(Lt)?\.so|libcudnn_(ops|cnn|engines)|libnccl|libcurand")
"""What training needs of NVIDIA's libraries."""
DRIVERS = {"8.2": "535.54.03", "8.3": "545.23.06", "8.5": "555.42.02"}
"""The first driver that compiles a version of PTX: that of the toolkit that brought it."""
ROWS = read_table()
Code = dict[int, int]


def counts(text: str) -> Code:
    return {int(each.split("x")[0]): int(each.split("x")[1]) for each in text.split()}


def rows_of(name: str, build: CudaBuild) -> list[dict[str, str]]:
    lock = (load_manifests()[name].folder / build.requirements).with_suffix(".lock")
    digests = defaultdict(list)
    for row in ROWS:
        digests[row["distribution"], row["version"]].append(row)
    found = []
    for distribution, version, hashes, _ in pinned(lock):
        rows = digests[distribution, version]
        assert rows, f"{distribution} {version} was not read: benchmarks/gpu/wheel_architectures.py --locked"
        assert all(row["sha256"] in hashes for row in rows)
        found += [row for row in rows if USED.search(row["library"]) or OWN.search(row["library"])]
    return found


def has_machine_code(row: dict[str, str], capability: int) -> bool:
    """Machine code runs on its own architecture and on later ones of the same major number."""
    code = counts(row["machine_code"])
    fitting = [pieces for place, pieces in code.items() if place // 10 == capability // 10 and place <= capability]
    if not OWN.search(row["library"]):
        return bool(fitting)
    return max(fitting, default=0) > max(code.values()) / 2  # else most kernels are there as intermediate code


def has_intermediate_code(row: dict[str, str], capability: int) -> bool:
    return any(place <= capability for place in counts(row["intermediate_code"]))


@pytest.mark.parametrize(("name", "build"), BUILDS, ids=IDS)
def test_every_device_that_a_build_is_offered_to_has_code_in_all_its_libraries(name: str, build: CudaBuild) -> None:
    for capability in filter(lambda each: offered(build, each), CAPABILITIES):
        for row in rows_of(name, build):
            if has_machine_code(row, capability):
                continue
            assert has_intermediate_code(row, capability), f"{row['library']} has nothing for {capability / 10}"
            assert build.compiled_from, f"{row['library']} is compiled by the driver on {capability / 10}"
            assert capability >= 10 * float(build.compiled_from)
            assert numbers(build.compiling_driver) >= numbers(DRIVERS[row["ptx"]])


@pytest.mark.parametrize(("name", "build"), BUILDS, ids=IDS)
def test_devices_that_a_build_is_kept_from_lack_code_or_the_manifest_says_what_else(
    name: str, build: CudaBuild
) -> None:
    for capability in CAPABILITIES:
        rows = rows_of(name, build)
        runs = all(has_machine_code(row, capability) for row in rows)
        assert offered(build, capability) or not runs
        if capability < 10 * float(build.oldest):
            assert not all(has_machine_code(row, capability) or has_intermediate_code(row, capability) for row in rows)


@pytest.mark.parametrize(("name", "build"), BUILDS, ids=IDS)
def test_a_build_without_intermediate_code_has_a_newest_device(name: str, build: CudaBuild) -> None:
    lacking = [row["library"] for row in rows_of(name, build) if not row["intermediate_code"]]
    assert build.newest or not lacking


def test_pieces_of_a_fat_binary_are_told_with_their_version() -> None:
    def piece(kind: int, version: tuple[int, int], architecture: int) -> bytes:
        head = struct.pack("<HHIQIIHHI", kind, 0x101, 64, 8, 0, 0, version[1], version[0], architecture)
        return head.ljust(64, b"\0") + b"12345678"

    inner = piece(2, (7, 1), 80) + piece(1, (8, 5), 90)
    library = b"before" + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inner)) + inner + b"behind"
    assert list(pieces(library)) == [Piece(2, 80, (7, 1)), Piece(1, 90, (8, 5))]
    assert [str(each) for each in pieces(library)] == ["sm_80", "compute_90"]


def offered(build: CudaBuild, capability: int) -> bool:
    return 10 * float(build.oldest) <= capability <= 10 * float(build.newest or "99.0")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
