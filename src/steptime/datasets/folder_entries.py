"""What lies in a user's folder: files of the endings that are read, folders, and what is not used, by reason."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steptime.datasets.dataset import Counts

_ENDING = re.compile("[a-z][a-z0-9]{0,7}")
LITTER = (
    *("lost+found", "@eaDir", "#recycle", "@Recycle", "__MACOSX", "$RECYCLE.BIN", "System Volume Information"),
    *("Thumbs.db", "desktop.ini", ".DS_Store", ".ipynb_checkpoints"),
)
"""What file systems, NAS devices, desktops and notebooks leave; also all other hidden files and folders."""
_LITTER = {name.casefold(): name for name in LITTER}


@dataclass(frozen=True)
class Entries:
    """What lies directly in a folder."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    linked: set[str] = field(default_factory=set)
    """Those of the folders that are links."""
    left_out: Counts = field(default_factory=Counter)


def entries_of(folder: Path, endings: Sequence[str]) -> Entries:
    """Return what lies in a folder, sorted; ``files`` are those with one of the ``endings``, in lower case.

    Raises OSError where the folder, or what has such an ending, cannot be read.
    """
    found = Entries()
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if litter := _litter(entry.name):
                found.left_out["litter", litter] += 1
                continue
            wanted = entry.name.lower().endswith(tuple(endings))
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError:
                if wanted:
                    raise
                found.left_out["unreadable", ""] += 1
                continue
            if is_folder:
                found.folders.append(entry.name)
                found.linked.update([entry.name] if entry.is_symlink() else [])
            elif is_file and wanted:
                found.files.append(entry.name)
            elif is_file:
                found.left_out["format", _ending(entry.name)] += 1
            else:
                dangling = entry.is_symlink() and not Path(entry.path).exists()
                found.left_out["dangling_link" if dangling else "special_file", ""] += 1
    return found


def unused_of(folder: Path, entries: Entries, endings: Sequence[str]) -> Counts:
    """Count what is not used of a class: other files in its folder, and all in deeper ones; no link is followed."""
    counts = Counter(entries.left_out)
    counts["linked_folder", ""] += len(entries.linked)
    waiting = [folder / each for each in entries.folders if each not in entries.linked]
    while waiting:
        place = waiting.pop()
        try:
            deeper = entries_of(place, endings)
        except OSError:
            counts["unreadable", ""] += 1
            continue
        counts += deeper.left_out
        counts["deeper_folder", ""] += len(deeper.files)
        counts["linked_folder", ""] += len(deeper.linked)
        waiting += [place / each for each in deeper.folders if each not in deeper.linked]
    return counts


def _litter(name: str) -> str:
    """Return the name by which litter is counted; empty for anything else."""
    if name.startswith("._"):
        return "._*"
    return _LITTER.get(name.casefold(), "hidden" if name.startswith(".") else "")


def _ending(name: str) -> str:
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    return ending if not ending or _ENDING.fullmatch(ending) else "of an odd ending"
