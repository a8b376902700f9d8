"""The system's page cache of a dataset's files: dropped before a launch whose first epoch is to read from the disk.

``posix_fadvise(POSIX_FADV_DONTNEED)`` needs no privilege. The kernel may ignore it (pages that are mapped or not yet
written, file systems in memory), so that what is left is read back with ``mincore``.

``python -m steptime.execution.page_cache LOADER`` does it on the host that it runs on, for the files of a job's
``loader`` (JSON), and prints the ``PageCache`` as JSON; ``drop_on_hosts`` starts it on every host of a launch.
"""

import ctypes
import json
import mmap
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from steptime.catalog.found_site import FoundHost, Reach
from steptime.launchers.hosts.commands import single_command, variables_of_line
from steptime.results.loader_records import PageCache

_LOOKED_AT = 200
"""Files whose pages are counted; of more files, a random choice."""
_PAGE = mmap.PAGESIZE
_HOST_LIMIT_S = 300.0
"""What a host may take; a dataset may have a million files."""


def dataset_files(loader: Mapping[str, Any]) -> list[Path]:
    """Return the files that a job's ``loader`` reads; none for data in memory."""
    dataset = loader.get("dataset") or {}
    if dataset.get("form") == "image_folder":
        names = json.loads(Path(dataset["index"]).read_text("utf-8"))["files"]
        return [Path(dataset["root"], name) for name, _ in names]
    if "path" in dataset:
        return [Path(dataset["path"])]
    return sorted(path for path in Path(dataset["root"]).rglob("*") if path.is_file()) if "root" in dataset else []


def drop_page_cache(files: Sequence[Path]) -> PageCache | None:
    """Ask the system to forget the pages of ``files``, and return what it had and has of them; None for no files."""
    if not files:
        return None
    chosen = files if len(files) <= _LOOKED_AT else random.Random(0).sample(list(files), _LOOKED_AT)  # noqa: S311
    before = cached_share(chosen)
    dropped = sum(map(_drop, files))
    return PageCache(share_before=before, share_after=cached_share(chosen), files=dropped)


def drop_on_hosts(hosts: Sequence[FoundHost], reach: Reach, loader: Mapping[str, Any]) -> PageCache | None:
    """Drop the files of a job's ``loader`` from the page cache of each host of a launch, at the same time.

    Return the largest shares and the fewest files of any host; None for no files, and where a host does not answer.
    """
    if not dataset_files(loader):
        return None
    asked = json.dumps({"dataset": loader["dataset"]})
    command = [sys.executable, "-I", "-m", "steptime.execution.page_cache", asked]
    with ThreadPoolExecutor(len(hosts)) as pool:
        found = list(pool.map(lambda host: _dropped_on(single_command(host, reach, command)), hosts))
    known = [each for each in found if each is not None]
    if len(known) < len(hosts):
        return None
    return PageCache(
        share_before=_largest([each.share_before for each in known]),
        share_after=_largest([each.share_after for each in known]),
        files=min(each.files for each in known),
    )


def _dropped_on(command: Sequence[str]) -> PageCache | None:
    try:
        done = subprocess.run(
            command,
            env=variables_of_line(command, os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_HOST_LIMIT_S,
        )
        return PageCache(**json.loads(done.stdout.splitlines()[-1]))
    except (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError):
        return None


def _largest(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return max(known) if known and len(known) == len(shares) else None


def _drop(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False  # the launch itself will say so
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except (OSError, AttributeError):
        return False
    finally:
        os.close(descriptor)
    return True


def cached_share(files: Sequence[Path]) -> float | None:
    """Return the share of the pages of ``files`` that are in memory; None if the system does not say."""
    counts = [_pages(path) for path in files]
    if any(count is None for count in counts):
        return None
    known = [count for count in counts if count is not None]
    total = sum(pages for _, pages in known)
    return sum(present for present, _ in known) / total if total else None


def _pages(path: Path) -> tuple[int, int] | None:
    """Return how many pages of a file are in memory, and how many it has."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return 0, 0
            # Private and writable, since ctypes takes the address of nothing else; nothing is written.
            with mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as pages:
                return _resident(pages, size)
    except (OSError, ValueError, AttributeError):
        return None


def _resident(pages: mmap.mmap, size: int) -> tuple[int, int] | None:
    count = -(-size // _PAGE)
    present = (ctypes.c_ubyte * count)()
    first = ctypes.c_char.from_buffer(pages)
    try:
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), present)
    finally:
        del first  # the map cannot be closed while anything points into it
    return None if failed else (sum(each & 1 for each in present), count)


if __name__ == "__main__":
    dropped = drop_page_cache(dataset_files(json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps(asdict(dropped) if dropped else None) + "\n")
