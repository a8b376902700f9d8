"""The table of a framework's settings in its README, held to its manifest.

Below the heading ``## Settings`` a table ``setting | documented | tuned | source`` has a row for each option, its name
in backticks, and rows for settings that are fixed in code. The cells hold the values of both tiers as a study file has
them; the source is a guide, an example or an issue.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from steptime.catalog.manifest import Manifest
from steptime.catalog.options import OptionValue

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
    """Return the rows of a README's table of settings, or nothing if it has no such table."""
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
