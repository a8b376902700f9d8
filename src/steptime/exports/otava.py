"""Results folders of one study over time, as the table and configuration that Apache Otava reads for change points.

Otava looks at a whole history and needs many points; ``steptime compare`` looks at two of them and knows their
intervals. Times are of whole launches, which are the unit of either.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML

from steptime.analysis.pooled_conditions import versions_of
from steptime.errors import StoreError
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store
from steptime.statistics.estimate import estimate
from steptime.user_output import HISTORY, HISTORY_SETTINGS, require_free, write_user_file

_TABLE, _SETTINGS = "otava.csv", "otava.yaml"
_TIME, _FOLDER, _VERSION = "time", "folder", "steptime"
_DOWN_IS_BETTER = -1


def export_history(stores: Sequence[Store], folder: Path) -> list[Path]:
    """Write the history of step times in ``stores`` to ``folder``; return the paths of the table and of its settings.

    A row of the table is a results folder, oldest first: when its last launch began, its path, the version of steptime,
    and for each trial the step time in seconds (empty where the folder lacks the trial). ``otava analyze`` takes the
    settings: a test for each trial that every folder has, since Otava reads no gaps.

    Raises StoreError when no trial is in all of the folders, or a file cannot be written.
    """
    points = sorted((_point(store) for store in stores), key=lambda point: point[0][_TIME])
    trials = list(dict.fromkeys(name for _, steps in points for name in steps))
    common = [name for name in trials if all(name in steps for _, steps in points)]
    if not common:
        paths = ", ".join(str(store.path) for store in stores)
        message = f"no trial was measured in all of {paths}: a history needs the same study in each folder"
        raise StoreError(message)
    table = io.StringIO()
    writer = csv.DictWriter(table, [_TIME, _FOLDER, _VERSION, *trials], lineterminator="\n", restval="")
    writer.writeheader()
    for facts, steps in points:
        writer.writerow({**facts, **{name: f"{seconds:.9g}" for name, seconds in steps.items()}})
    target = folder / _TABLE
    settings = folder / _SETTINGS
    require_free(settings, HISTORY_SETTINGS)
    write_user_file(target, table.getvalue().encode(), HISTORY)
    write_user_file(settings, _settings(target, common).encode(), HISTORY_SETTINGS)
    return [target, settings]


def _point(store: Store) -> tuple[dict[str, str], Mapping[str, float]]:
    """Return the facts and the step times of one results folder."""
    steps, started, version = {}, [""], ""
    for trial in store.trials():
        launches = [each for each in store.iter_records(TIMING, trial.id) if each.status == "ok"]
        found = estimate(launches, trial.strategy)
        if found is not None:
            steps[trial.id] = found.mean
            started += [each.started_at for each in launches]
            version = versions_of(launches[-1])["steptime"]
    return {_TIME: max(started), _FOLDER: str(store.path), _VERSION: version}, steps


def _settings(table: Path, trials: Sequence[str]) -> str:
    """Return Otava's configuration: a test for each trial, whose metric is better when it is smaller."""
    tests = {
        trial: {
            "type": "csv",
            "file": str(table.absolute()),
            "time_column": _TIME,
            "attributes": [_FOLDER, _VERSION],
            "metrics": {"step_time_s": {"column": trial, "direction": _DOWN_IS_BETTER, "scale": 1.0}},
            "csv_options": {"delimiter": ",", "quote_char": '"'},
        }
        for trial in trials
    }
    written = io.StringIO()
    YAML(typ="safe").dump({"tests": tests}, written)
    return written.getvalue()
