"""The creation of a built-in dataset: complete under its name, or not there at all.

``dataset.json`` describes a dataset that was made, with a checksum; it is written before the folder gets its name.
"""

import errno
import hashlib
import json
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from steptime.datasets.atomic_writes import partial_folder, put_in_place, require_unchanged
from steptime.datasets.builtins import BUILTINS, REQUIREMENTS, Builtin
from steptime.datasets.dataset import IN_MEMORY, Dataset
from steptime.datasets.image_folder import scan
from steptime.errors import DatasetError, choices_message
from steptime.plain_file import temporary_folder
from steptime.synonyms import where_path_ends


def open_dataset(name: str, cache: Path, *, skip_broken: bool = False) -> Dataset:
    """Return a built-in dataset that has been made, or a user's folder of images, looked through.

    Args:
        name: a key of ``builtins.BUILTINS``, or a folder ``FOLDER/class/*.jpg`` (or jpeg, png), or one that holds a
            folder ``train`` and a folder ``validation`` of such classes.
        cache: the user's cache folder, where indices of folders are kept.
        skip_broken: whether broken images are left out instead of being an error.

    Raises DatasetError, which names what is wrong and the remedy, also for a built-in dataset that is not made yet.
    """
    if name in BUILTINS:
        made = find_builtin(name, cache)
        if made is None:
            message = (
                f"the dataset {name} has not been made on this machine; 'steptime run' and 'steptime data' make it"
            )
            raise DatasetError(message)
        return made
    folder = Path(name).expanduser()
    if not folder.exists():
        raise DatasetError(_missing(name, folder))
    if not folder.is_dir():
        message = f"the dataset {name} is a file; name a folder that has one folder of images per class"
        raise DatasetError(message)
    return scan(name, folder.absolute(), cache, skip_broken=skip_broken)


def _missing(name: str, folder: Path) -> str:
    if os.sep not in name:
        return f"{choices_message('dataset', name, BUILTINS)}, and no folder {folder.absolute()}"
    return f"no folder {folder.absolute()} for the dataset {name}; {where_path_ends(folder.absolute())}"


SCHEMA = 1
"""1: name, address, parameters, checksum, bytes, samples, classes."""
NAME = "dataset.json"


def write_marker(folder: Path, builtin: Builtin, address: str, parameters: Mapping[str, int]) -> None:
    """Describe the dataset that a maker has just left in ``folder``."""
    checksum, total = checksum_of(folder)
    content = {
        "schema": SCHEMA,
        "name": builtin.name,
        "address": address,
        "parameters": dict(parameters),
        "checksum": checksum,
        "bytes": total,
        "samples": parameters.get("count", builtin.samples),
        "classes": list(builtin.classes),
    }
    (folder / NAME).write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")


def read_marker(folder: Path) -> dict[str, Any] | None:
    """Return what ``folder`` is by its own marker; None if this version does not understand it."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("schema") == SCHEMA else None


def made_dataset(folder: Path, builtin: Builtin, address: str) -> Dataset | None:
    """Return the built-in dataset in ``folder`` if it is the one at ``address`` and every byte is still there.

    What was added to the folder since does not count.
    """
    marker = read_marker(folder)
    if marker is None or marker["address"] != address:
        return None
    whole = (marker["checksum"], marker["bytes"])
    if checksum_of(folder) != whole and checksum_of(folder, _own_files(folder, marker)) != whole:
        return None
    arrays = builtin.form in IN_MEMORY
    return Dataset(
        name=builtin.name,
        form=builtin.form,
        path=folder.absolute() / f"{builtin.name}.npz" if arrays else folder.absolute(),
        index=None if arrays else folder.absolute() / "index.json",
        samples=marker["samples"],
        class_names=tuple(marker["classes"]),
        input_shape=builtin.input_shape,
        bytes=marker["bytes"],
    )


def _own_files(folder: Path, marker: Mapping[str, Any]) -> set[str]:
    """Return the files that a made dataset has by its marker and its index, as far as that can be read."""
    builtin = BUILTINS.get(marker["name"])
    if builtin is None or builtin.form in IN_MEMORY:
        return {NAME, f"{marker['name']}.npz"}
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        return {NAME, "index.json", *(name for name, _ in index["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {NAME, "index.json"}


def checksum_of(folder: Path, names: Collection[str] | None = None) -> tuple[str, int]:
    """Return a checksum of names and bytes of the files below ``folder`` but the marker, and how many bytes.

    Args:
        folder: of a dataset.
        names: of the files, relative to it, that count; None for all.
    """
    digest, total = hashlib.sha256(), 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / NAME):
        if names is not None and path.relative_to(folder).as_posix() not in names:
            continue
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
        total += len(content)
    return digest.hexdigest(), total


_TIME_LIMIT_S = 1800.0
_SAID = 800
"""Characters of a maker's last words in an error."""
_LAST_LINES = 40


Progress = Callable[[int, int], None]
"""Called with how many samples are there, and how many there will be."""


def _untold(_: int, __: int) -> None: ...


def make(name: str, folder: Path, interpreter: Path, progress: Progress = _untold, **parameters: int) -> Dataset:
    """Return the built-in dataset ``name`` at ``folder``, made by ``interpreter`` if it is not there yet.

    Args:
        name: a key of ``builtins.BUILTINS``.
        folder: must not exist, be empty, or hold a dataset that steptime made and nothing else.
        interpreter: a Python with ``builtins.REQUIREMENTS`` installed.
        progress: is called as samples are made.
        parameters: some of the dataset's, instead of their defaults.

    Raises DatasetError when a parameter is wrong, the folder holds something else, cannot be written, or the maker
    fails.
    """
    builtin = _builtin(name)
    chosen = chosen_parameters(builtin, parameters)
    address = address_of(builtin, chosen)
    if made := made_dataset(folder, builtin, address):
        return made
    _require_replaceable(folder, address)
    folder = folder.absolute()
    try:
        with partial_folder(folder) as partial:
            run_maker(builtin.maker, name, partial, interpreter, chosen, progress)
            write_marker(partial, builtin, address, chosen)
            _put_in_place(partial, folder, builtin, address)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DatasetError(_full(name, folder.parent)) from error
        message = f"the dataset {name} cannot be written to {folder}: {error.strerror or error}; choose another folder"
        raise DatasetError(message) from error
    made = made_dataset(folder, builtin, address)
    if made is None:
        message = f"the dataset {name} was made, but {folder} has changed since; is something else writing there?"
        raise DatasetError(message)
    return made


def builtin_folder(name: str, cache: Path, **parameters: int) -> Path:
    """Return where a built-in dataset lies in the cache, made or not; another maker or parameter is another folder."""
    builtin = _builtin(name)
    return cache / "datasets" / f"{name}-{address_of(builtin, chosen_parameters(builtin, parameters))}"


def find_builtin(name: str, cache: Path, **parameters: int) -> Dataset | None:
    """Return a built-in dataset that is in the cache, whole; None otherwise."""
    builtin = _builtin(name)
    address = address_of(builtin, chosen_parameters(builtin, parameters))
    return made_dataset(builtin_folder(name, cache, **parameters), builtin, address)


def chosen_parameters(builtin: Builtin, parameters: Mapping[str, int]) -> dict[str, int]:
    """Return all parameters of a dataset; raises DatasetError for one that it lacks or that is out of range."""
    mistakes = [
        choices_message(f"parameter of {builtin.name}", key, builtin.parameters)
        for key in parameters
        if key not in builtin.parameters
    ]
    chosen = {**builtin.parameters, **parameters}
    if "count" in chosen and chosen["count"] < len(builtin.classes):
        mistakes.append(f"count is {chosen['count']}; {len(builtin.classes)} classes need one image each at least")
    mistakes += [
        f"{side} is {chosen[side]}; images may have 8 to 4096 pixels a side"
        for side in ("width", "height")
        if side in chosen and not 8 <= chosen[side] <= 4096  # noqa: PLR2004 - named in the message
    ]
    if chosen.get("seed", 0) < 0:
        mistakes.append(f"seed is {chosen['seed']}; it must not be negative")
    if mistakes:
        raise DatasetError("\n".join(mistakes))
    return chosen


def address_of(builtin: Builtin, parameters: Mapping[str, int]) -> str:
    """Return a hash of all that a made dataset depends on: its maker, the maker's requirements and the parameters."""
    digest = hashlib.sha256(builtin.maker.read_bytes() + REQUIREMENTS.read_bytes())
    digest.update(json.dumps(dict(parameters), sort_keys=True).encode())
    return digest.hexdigest()[:12]


def _builtin(name: str) -> Builtin:
    if name not in BUILTINS:
        raise DatasetError(choices_message("built-in dataset", name, BUILTINS))
    return BUILTINS[name]


def run_maker(  # noqa: PLR0913, PLR0917 - one per fact
    maker: Path,
    name: str,
    folder: Path,
    interpreter: Path,
    parameters: Mapping[str, int],
    progress: Progress = _untold,
) -> None:
    """Fill ``folder`` by a program of ``makers``, for the dataset ``name``; raises DatasetError where it fails."""
    arguments = json.dumps({"folder": str(folder), **parameters})
    late = threading.Event()
    said: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        [str(interpreter), "-I", str(maker), arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as running:

        def stop() -> None:
            late.set()
            running.kill()

        timer = threading.Timer(_TIME_LIMIT_S, stop)
        timer.start()
        try:
            for line in running.stdout or ():
                told = line.split()
                if len(told) == 3 and told[0] == "progress" and told[1].isdecimal() and told[2].isdecimal():  # noqa: PLR2004
                    progress(int(told[1]), int(told[2]))
                else:
                    said.append(line)
        except BaseException:
            running.kill()
            raise
        finally:
            timer.cancel()
    if late.is_set():
        message = f"making the dataset {name} took more than {_TIME_LIMIT_S / 60:.0f} minutes; ask for less"
        raise DatasetError(message)
    if running.returncode:
        last = "".join(said).strip()[-_SAID:]
        if os.strerror(errno.ENOSPC) in last:
            raise DatasetError(_full(name, folder.parent))
        message = f"the dataset {name} cannot be made with {interpreter} (exit code {running.returncode}):\n{last}"
        raise DatasetError(message)


def _full(name: str, folder: Path) -> str:
    return (
        f"the disk of {folder} became full while the dataset {name} was written; its part was removed, and what was "
        "there before is unchanged: free some space, ask for less, or choose another folder"
    )


def expected_bytes(name: str, interpreter: Path, **parameters: int) -> int | None:
    """Return about how large a dataset will be, from a few of its samples; None if it cannot be made smaller.

    Raises DatasetError as ``make`` does.
    """
    builtin = _builtin(name)
    chosen = chosen_parameters(builtin, parameters)
    if "count" not in chosen:
        return None
    few = 2 * len(builtin.classes)
    with temporary_folder("dataset") as folder:
        made = make(name, folder / name, interpreter, _untold, **{**chosen, "count": few})
        return made.bytes * chosen["count"] // few


def _require_replaceable(folder: Path, address: str) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        message = f"{folder} is a file; name a folder that does not exist yet"
        raise DatasetError(message)
    if not any(folder.iterdir()):
        return
    marker = read_marker(folder)
    if marker is None:
        message = f"{folder} holds something already; name an empty folder, or one that does not exist yet"
        raise DatasetError(message)
    if marker["address"] != address:
        require_unchanged(folder, _own_files(folder, marker))


def _put_in_place(partial: Path, folder: Path, builtin: Builtin, address: str) -> None:
    """Give a complete dataset its name; whoever comes second finds the same one there already."""
    if made_dataset(folder, builtin, address):
        return
    marker = read_marker(folder)
    own = _own_files(folder, marker) if marker else set()
    if marker and marker["address"] == address:  # its index may be damaged, and has the names of the new one
        own |= {path.relative_to(partial).as_posix() for path in partial.rglob("*")}
    try:
        put_in_place(partial, folder, own)
    except OSError:
        if made_dataset(folder, builtin, address) is None:
            raise
