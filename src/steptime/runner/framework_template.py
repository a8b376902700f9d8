"""A new framework or workload from a template: ``examples/numpy_ring`` or ``own_module`` under another name.

The examples are installed with steptime, so that what the documentation shows, what tests run and what is written for
somebody's own are the same files.

The table of a framework's settings in its README, held to its manifest.

Below the heading ``## Settings`` a table ``setting | documented | tuned | source`` has a row for each option, its name
in backticks, and rows for settings that are fixed in code. The cells hold the values of both tiers as a study file has
them; the source is a guide, an example or an issue.
"""

import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import steptime
from steptime.catalog.manifest import Manifest, broken_frameworks, load_manifests
from steptime.catalog.options import OptionValue
from steptime.catalog.workloads.table import LIBRARY
from steptime.errors import UsageError, choices_message

_INSTALLED = Path(steptime.__file__).parent / "framework_template"
_INSTALLED_MODULE = _INSTALLED.with_name("workload_template")
_CHECKOUT = Path(steptime.__file__).parents[2] / "examples" / "numpy_ring"
"""Where the template is in a copy of the repository, which is installed without being copied."""
_EXAMPLE = "numpy_ring"
_MODULE = "my_module"
_FOLDERS_OF_KINDS = {"torch": "", "jax": "jax", "keras": "keras"}
_WORKLOAD = "tiny_mlp"
_SUFFIXES = {".md", ".py", ".toml", ".txt", ".yaml"}


def template_files() -> list[Path]:
    """Return the template's files, relative to its folder."""
    folder = _folder()
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in _SUFFIXES]
    return sorted(path.relative_to(folder) for path in files)


def write_framework(name: str, folder: Path) -> list[Path]:
    """Write the package of a framework called ``name`` into ``folder`` and return its files.

    Args:
        name: of the framework, a Python identifier that no framework has yet.
        folder: does not exist, or is empty.

    Raises UsageError for such a name or folder, OSError when files cannot be written.
    """
    _require_name(name, "a framework")
    if name in load_manifests() or name in broken_frameworks():
        message = f"there is a framework {name!r} already (steptime list frameworks); choose another name"
        raise UsageError(message)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder} exists already; name a folder that does not"
        raise UsageError(message)
    written = []
    for path in template_files():
        target = folder / _renamed(str(path), name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_renamed((_folder() / path).read_text("utf-8"), name), encoding="utf-8")
        written.append(target)
    return written


def write_workload(name: str, folder: Path, framework: str = "pytorch") -> list[Path]:
    """Write a user's module called ``name`` and the study that races it into ``folder``; return both files.

    Raises UsageError for such a name or framework and where one of the files is there, OSError when they cannot be
    written.
    """
    kinds = {each: kind for each, manifest in load_manifests().items() if (kind := manifest.own_modules)}
    if framework not in kinds:
        raise UsageError(choices_message("framework for modules of your own", framework, kinds))
    _require_name(name, "a workload")
    if name in LIBRARY:
        message = f"there is a workload {name!r} already (steptime list workloads); choose another name"
        raise UsageError(message)
    template = _INSTALLED_MODULE if _INSTALLED_MODULE.is_dir() else _CHECKOUT.parent / "own_module"
    template /= _FOLDERS_OF_KINDS[kinds[framework]]
    targets = {folder / f"{name}{suffix}": template / f"{_MODULE}{suffix}" for suffix in (".py", ".yaml")}
    for target in targets:
        if target.exists():
            message = f"{target} exists already; choose another name, or another folder with -o"
            raise UsageError(message)
    folder.mkdir(parents=True, exist_ok=True)
    for target, original in targets.items():
        text = re.sub("(?m)^frameworks: .*$", f"frameworks: {framework}", original.read_text("utf-8"))
        target.write_text(text.replace(_MODULE, name), encoding="utf-8")
    return list(targets)


def _require_name(name: str, what: str) -> None:
    if not (name.isascii() and name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        message = f"{name!r} cannot name {what}: use small letters, digits and '_', beginning with a letter"
        raise UsageError(message)


_OF_PACKAGE = re.compile(rf'{_EXAMPLE}(?=[./](?:framework|{_WORKLOAD}|__init__)\b|"\])')
"""The example's name where it is that of the Python package."""


def _renamed(text: str, name: str) -> str:
    """Return a path or a text of the example for ``name``; its package may not hide the one that it is about."""
    text = _OF_PACKAGE.sub(f"steptime_{name}", text)
    text = text.replace(_WORKLOAD, f"{name}_mlp").replace(_WORKLOAD.upper(), f"{name}_mlp".upper())
    return text.replace(_EXAMPLE, name).replace(_EXAMPLE.replace("_", "-"), f"steptime-{name.replace('_', '-')}")


def _folder() -> Path:
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT


HEADING = "## Settings"
HEADER = ["setting", "documented", "tuned", "source"]
_LINK = re.compile(r"\]\([^)]+\)|https?://")


class SettingsRow(NamedTuple):
    """One row of the table, as text."""

    setting: str
    documented: str
    tuned: str
    source: str


def settings_rows(readme: str) -> list[SettingsRow]:
    """Return the rows of a README's table of settings; none where there is no such table."""
    _, found, rest = readme.partition(f"\n{HEADING}\n")
    lines = rest.split("\n## ")[0].splitlines() if found else []
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines if line.startswith("|")]
    if not cells or [cell.strip() for cell in cells[0]] != HEADER:
        return []
    return [SettingsRow(*row) for row in cells[2:] if len(row) == len(HEADER)]


def settings_mistakes(manifest: Manifest) -> list[str]:
    """Say where the table of the framework's README and its manifest disagree."""
    path = manifest.folder / "README.md"
    rows = settings_rows(path.read_text("utf-8")) if path.is_file() else []
    if not rows:
        return [f"README.md has no table '{' | '.join(HEADER)}' below the heading '{HEADING}'"]
    return list(_mistakes(manifest, rows))


def _mistakes(manifest: Manifest, rows: list[SettingsRow]) -> Iterator[str]:
    named = {name: row for row in rows for name in re.findall(r"`([^`]+)`", row.setting)}
    for row in rows:
        if not all(row):
            yield f"the row of {row.setting or 'a setting'} has an empty cell"
    for name, option in manifest.options.items():
        if name not in named:
            yield f"the option {name} has no row"
            continue
        row, tuned, common = named[name], _tuned_values(manifest, name), manifest.tuned.options.get(name)
        if not _says(row.documented, option.default):
            yield f"{name}: the documented value is {_written(option.default)}, not {row.documented}"
        for value in tuned:
            # The source may say where the value differs by device or strategy.
            if not _says(row.tuned if value == common else f"{row.tuned} {row.source}", value):
                yield f"{name}: the tuned value is {_written(value)}, which {row.tuned!r} does not say"
        if any(value != option.default for value in tuned) and not _LINK.search(row.source):
            yield f"{name}: its source is not a link to a guide, an example or an issue"


def _tuned_values(manifest: Manifest, name: str) -> list[OptionValue]:
    """Return the values of an option in the tier ``tuned``: the common one, and those of devices and strategies."""
    tuned = manifest.tuned
    tables = [tuned.options, *tuned.devices.values(), *tuned.strategies.values()]
    found = [table[name] for table in tables if name in table]
    return found or [manifest.options[name].default]


def _says(cell: str, value: OptionValue) -> bool:
    """Whether a cell names ``value``, as a study file has it or in other digits."""
    words = [word.strip(".,;:") for word in re.sub(r"[`'\"()]", " ", cell).split()]
    if isinstance(value, (bool, str)):
        return _written(value) in words
    return any(_number(word) == float(value) for word in words)


def _written(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(word: str) -> float | None:
    try:
        return float(word.replace(",", ""))
    except ValueError:
        return None
