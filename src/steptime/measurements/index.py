"""A cache of one row per launch, so that a question about progress need not read every record.

It is never the truth: it can be deleted at any time, catches up from the byte where it stopped, and is made anew
when it does not fit the records. Where it cannot be written it is kept in memory.
"""

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from steptime.measurements.jsonlines import read_lines
from steptime.measurements.launch_times import step_times
from steptime.measurements.records import Launch

Kind = Literal["timing", "ablation"]
FILES: Mapping[Kind, str] = {"timing": "records.jsonl", "ablation": "ablation.jsonl"}
"""Where the launches of a trial are, in its folder."""
_VERSION = 2
_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    trial TEXT NOT NULL, kind TEXT NOT NULL, end INTEGER NOT NULL, PRIMARY KEY (trial, kind));
CREATE TABLE IF NOT EXISTS launches (
    trial TEXT NOT NULL, launch INTEGER NOT NULL, block INTEGER NOT NULL, status TEXT NOT NULL,
    started_at TEXT NOT NULL, wall_s REAL NOT NULL, steps INTEGER NOT NULL, median_s REAL, reason TEXT,
    kind TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS launches_by_trial ON launches (trial, launch);
"""


@dataclass(frozen=True)
class IndexRow:
    """What the index knows of one launch."""

    trial: str
    launch: int
    block: int
    status: str
    started_at: str
    wall_s: float
    steps: int
    median_s: float | None
    """Median step time over all timed steps; None when there are none."""
    reason: str | None
    kind: Kind = "timing"
    """A launch that takes steps apart has no steps of its own here, and the number of its launch as its block."""


def progress(
    rows: Sequence[IndexRow], trials: Sequence[str], verdicts: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Return one object per trial: its id, its launches of both kinds that were ok and that failed, and why it stopped.

    Args:
        rows: of all launches.
        trials: ids, in the order of the result.
        verdicts: by trial, why it is not launched again; without one, the first failure of a trial is its reason.
    """
    found = []
    for trial in trials:
        own = [row for row in rows if row.trial == trial]
        launches = [row for row in own if row.kind == "timing"]
        ablations = [row for row in own if row.kind == "ablation"]
        failures = [row.reason for row in (*launches, *ablations) if row.status != "ok"]
        verdict = verdicts.get(trial)
        found.append(
            {
                "trial": trial,
                "ok": sum(row.status == "ok" for row in launches),
                "failed": sum(row.status != "ok" for row in launches),
                "ablations_ok": sum(row.status == "ok" for row in ablations),
                "ablations_failed": sum(row.status != "ok" for row in ablations),
                "steps": sum(row.steps for row in launches),
                "last_launch_at": max((row.started_at for row in own), default=None),
                "reason": verdict["reason"] if verdict else next(iter(failures), None),
            }
        )
    return found


class Index:
    """The cache in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self, folder: Path, strategies: Mapping[str, str]) -> list[IndexRow]:
        """Catch up with the records below ``folder`` and return all rows, by trial, timing launches first.

        Args:
            folder: the results folder.
            strategies: the strategy of each trial, by its id.
        """
        try:
            return self._rows(str(self._path), folder, strategies)
        except (sqlite3.Error, OSError):
            self.delete()
        with contextlib.suppress(sqlite3.Error, OSError):
            return self._rows(str(self._path), folder, strategies)
        return self._rows(":memory:", folder, strategies)

    def delete(self) -> None:
        """Remove the file; what is in it can be made anew."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _rows(self, database: str, folder: Path, strategies: Mapping[str, str]) -> list[IndexRow]:
        with contextlib.closing(sqlite3.connect(database, timeout=5.0)) as connection:
            connection.execute("PRAGMA synchronous=OFF")  # a cache that a power cut damages is made anew
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                message = f"index version {version}"
                raise sqlite3.DatabaseError(message)
            with connection:
                connection.executescript(_TABLES)
                connection.execute(f"PRAGMA user_version={_VERSION}")
                for trial, strategy in strategies.items():
                    for kind in FILES:
                        self._catch_up(connection, folder / "trials" / trial, trial, kind, strategy)
            query = "SELECT * FROM launches ORDER BY trial, kind DESC, launch"
            return [IndexRow(*row) for row in connection.execute(query) if row[0] in strategies]

    def _catch_up(self, connection: sqlite3.Connection, folder: Path, trial: str, kind: Kind, strategy: str) -> None:
        path = folder / FILES[kind]
        size = path.stat().st_size if path.exists() else 0
        own = (trial, kind)
        known = connection.execute("SELECT end FROM files WHERE trial = ? AND kind = ?", own).fetchone()
        start = known[0] if known else 0
        if size < start:  # replaced by a shorter file
            connection.execute("DELETE FROM launches WHERE trial = ? AND kind = ?", own)
            start = 0
        end = start
        for line in read_lines(path, start):
            end = line.end
            row = None
            if line.value is not None:
                with contextlib.suppress(KeyError, TypeError):
                    row = _timing_row(line.value, strategy) if kind == "timing" else _ablation_row(line.value)
            if row is not None:
                places = ", ".join("?" * (len(row) + 2))
                connection.execute(f"INSERT INTO launches VALUES ({places})", (trial, *row, kind))  # noqa: S608 - marks only
        if end != start or known is None or size < known[0]:
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (*own, end))


_Row = tuple[int, int, str, str, float, int, float | None, str | None]


def _timing_row(value: dict[str, Any], strategy: str) -> _Row:
    launch = Launch.from_json(value)
    times = step_times(launch, strategy)
    median = float(np.median(times)) if len(times) else None
    shared = (launch.launch, launch.block, launch.status, launch.started_at, launch.wall_s)
    return (*shared, len(times), median, launch.reason)


def _ablation_row(value: dict[str, Any]) -> _Row:
    shared = (value["launch"], value["launch"], value["status"], value["started_at"], value["wall_s"])
    return (*shared, 0, None, value["reason"])
