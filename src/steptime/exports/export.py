"""Results as tables for other programs: a row per trial, per step of a launch and of a worker, and per epoch."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import numpy as np

from steptime.analysis.accuracy import accuracy_of, loss_of, seconds_of
from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import Summary
from steptime.extras import require_extra
from steptime.results.record_kinds import TIMING, TRAINING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.statistics.launch_times import first_steady_steps, is_timed, step_times
from steptime.study.environment_variables import in_words
from steptime.study.study import FURTHER_FIELDS
from steptime.study.trial import Trial

if TYPE_CHECKING:
    import polars as pl

_PIECE = 256
"""Launches whose columns are put together at once."""
_INTERVALS = {
    "step_time_s": ("mean", "low", "high", "level", "median", "p90", "p99"),
    "throughput_samples_per_s": ("value", "low", "high"),
    "efficiency": ("value", "low", "high", "baseline_workers", "baseline_strategy"),
}
_WORK = ("tokens_per_s", "flop_per_s_per_device", "mfu")
_MEMORY = ("worker_memory_bytes", "host_memory_bytes", "device_memory_bytes")
_BOUNDS = ("value", "low", "high")
_PLAIN = (
    *("id", "group", "framework", "framework_version", "strategy", "workload", "dataset", "loader", "device"),
    *(
        "precision",
        "workers",
        "servers",
        "server_placement",
        "hosts",
        "threads",
        "cores_per_worker",
        "batch_per_worker",
        "loader_processes",
        "tuning",
        "implementation",
        "launches",
        "failed_launches",
    ),
    *("steps", "status", "reason", *FURTHER_FIELDS),
)


def export_tables(store: Store, folder: Path, to: Literal["parquet", "csv"]) -> list[Path]:
    """Write ``trials``, ``steps``, ``worker_steps``, ``trainings`` and ``set_aside`` to ``folder``; return the paths.

    - trials: a trial of the summary per row; ``step_time_s.mean`` becomes ``step_time_s_mean``, and so on.
    - steps: trial, launch, block, step, end_s (since the first timed step began), step_time_s, steady.
    - worker_steps: trial, launch, block, worker, host, step, end_s (of the worker's own clock, since its first timed
      step began), step_time_s (as the worker saw it).
    - trainings: an epoch of a training that ended well per row: trial, seed, epoch (from 1), accuracy and loss (of the
      validation set), seconds (of training until the epoch's end, without evaluation and checkpoints), learning_rate
      (of the epoch's last step).
    - set_aside: a line of the records that the other tables leave out per row: file, line, reason, message.

    Times are seconds. Raises StoreError as the store does, and when a table cannot be written; MissingExtra
    without polars.
    """
    require_extra("export")
    tables = {
        "trials": trials_table(summarise(store)),
        "steps": steps_table(store),
        "worker_steps": _worker_steps(store),
    }
    tables["trainings"] = _trainings(store)
    tables["set_aside"] = _set_aside(store)  # of all that was read for the others
    paths = []
    for name, table in tables.items():
        path = folder / f"{name}.{to}"
        with store.folder_around(path).replacement(path) as file:
            _write(table, file, to)
        paths.append(path)
    return paths


class _Refusals(io.RawIOBase):
    """A file for polars, which makes errors without a number, and of other types, of those of the system."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.first: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        try:
            return self._file.write(data)
        except OSError as error:
            self.first = self.first or error
            raise


def _write(table: "pl.DataFrame", file: BinaryIO, to: Literal["parquet", "csv"]) -> None:
    """Write a table to an open file; raises OSError as the system does."""
    refusals = _Refusals(file)
    target = cast("BinaryIO", refusals)
    try:
        if to == "parquet":
            table.write_parquet(target)
        else:
            table.write_csv(target)
    except Exception as error:
        if refusals.first is None:
            raise
        raise refusals.first from error


def trials_table(summary: Summary) -> "pl.DataFrame":
    """Return a row per trial, see ``export_tables``."""
    import polars as pl  # noqa: PLC0415 - a run of a study must not carry it in memory

    rows = []
    for trial in summary.model_dump(mode="json")["trials"]:
        row = {name: trial[name] for name in _PLAIN}
        for name, keys in _INTERVALS.items():
            row.update({f"{name}_{key}": trial[name][key] for key in keys})
        work = trial["work"] or {}
        row.update({f"{name}_{key}": work[name][key] if work else None for name in _WORK for key in _BOUNDS})
        row["peak_source"] = work.get("peak_source")
        needed = trial["resources"] or {}
        row.update({name: needed.get(name) for name in _MEMORY})
        row.update(
            {f"joules_per_sample_{key}": needed["joules_per_sample"][key] if needed else None for key in _BOUNDS}
        )
        row["input_shape"] = "x".join(map(str, trial["input_shape"]))
        row["tiers"] = ", ".join(trial["tiers"])
        row["options"] = ", ".join(f"{name}={value}" for name, value in trial["options"].items())
        row["environment_variables"] = in_words(trial["environment_variables"])
        row["container"] = trial["container"]
        row["flags"] = "; ".join(trial["flags"])
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def steps_table(store: Store) -> "pl.DataFrame":
    """Return a row per timed step, see ``export_tables``."""
    import polars as pl  # noqa: PLC0415 - as above

    schema = {"trial": pl.Categorical, "launch": pl.Int32, "block": pl.Int32, "step": pl.Int32}
    schema |= {"end_s": pl.Float64, "step_time_s": pl.Float64, "steady": pl.Boolean}
    parts = [_frame(launches, _step_columns, schema) for launches in _launches(store)]
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def _worker_steps(store: Store) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415 - as above

    schema = {"trial": pl.Categorical, "launch": pl.Int32, "block": pl.Int32, "worker": pl.Int32}
    schema |= {"host": pl.Categorical, "step": pl.Int32, "end_s": pl.Float64, "step_time_s": pl.Float64}
    parts = [_frame(launches, _worker_columns, schema) for launches in _launches(store)]
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def _frame(
    launches: Iterable[tuple[Trial, Launch]],
    columns_of: Callable[[Iterable[tuple[Trial, Launch]]], Iterator[dict[str, Any]]],
    schema: Mapping[str, Any],
) -> "pl.DataFrame":
    """Return one table of the columns of several launches: one of each launch would cost more than its steps."""
    import polars as pl  # noqa: PLC0415 - as above

    parts: dict[str, list[Any]] = {name: [] for name in schema}
    for columns in columns_of(launches):
        for name, values in columns.items():
            parts[name].append(values)
    whole = {
        name: np.concatenate(each) if each and isinstance(each[0], np.ndarray) else list(chain.from_iterable(each))
        for name, each in parts.items()
    }
    return pl.DataFrame(whole, schema=schema)


def _trainings(store: Store) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415 - as above

    schema = {"trial": pl.Categorical, "seed": pl.Int64, "epoch": pl.Int32, "accuracy": pl.Float64}
    schema |= {"loss": pl.Float64, "seconds": pl.Float64, "learning_rate": pl.Float64}
    return pl.DataFrame(list(_epochs(store)), schema=schema, orient="row")


def _set_aside(store: Store) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415 - as above

    schema = {"file": pl.String, "line": pl.Int32, "reason": pl.String, "message": pl.String}
    return pl.DataFrame([each.model_dump() for each in store.set_aside], schema=schema)


def _epochs(store: Store) -> Iterator[tuple[Any, ...]]:
    for trial in store.trials():
        # Of repeated trainings of one seed the last counts, as in the summary.
        for run in {run.seed: run for run in store.records(TRAINING, trial.id) if run.status == "ok"}.values():
            seconds = accumulate(map(seconds_of, run.epochs))
            for number, (epoch, passed) in enumerate(zip(run.epochs, seconds, strict=True), 1):
                rate = epoch[0].learning_rate
                yield trial.id, run.seed, number, accuracy_of(epoch), loss_of(epoch), passed, rate


def _step_columns(launches: Iterable[tuple[Trial, Launch]]) -> Iterator[dict[str, Any]]:
    steps = [(trial, launch, step_times(launch, trial.strategy)) for trial, launch in launches]
    timed = [index for index, (_, launch, times) in enumerate(steps) if is_timed(launch, times)]
    starts = dict(zip(timed, first_steady_steps([steps[index][2] for index in timed]), strict=True))
    for index, (trial, launch, times) in enumerate(steps):
        size = len(times)
        yield {
            **_names(trial, launch, size),
            "step": np.arange(size),
            "end_s": np.cumsum(times),
            "step_time_s": times,
            "steady": np.arange(size) >= starts.get(index, size),
        }


def _worker_columns(launches: Iterable[tuple[Trial, Launch]]) -> Iterator[dict[str, Any]]:
    found = ((trial, launch, worker) for trial, launch in launches for worker in launch.workers)
    for trial, launch, worker in found:
        ends = np.asarray([worker.origin_s, *worker.ends_s])
        size = len(worker.ends_s)
        yield {
            **_names(trial, launch, size),
            "worker": np.full(size, worker.rank),
            "host": [worker.host] * size,
            "step": np.arange(size),
            "end_s": ends[1:] - ends[0],
            "step_time_s": np.diff(ends),
        }


def _names(trial: Trial, launch: Launch, size: int) -> dict[str, Any]:
    return {
        "trial": [trial.id] * size,
        "launch": np.full(size, launch.launch),
        "block": np.full(size, launch.block),
    }


def _launches(store: Store) -> Iterator[list[tuple[Trial, Launch]]]:
    """Yield the launches of all trials in pieces that are small enough to be held."""
    for trial in store.trials():
        launches = store.iter_records(TIMING, trial.id)
        while piece := [(trial, launch) for launch in islice(launches, _PIECE)]:
            yield piece
