"""Results as tables for other programs: a row per trial, per step of a launch and of a worker, and per epoch."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from steptime.analysis.accuracy import accuracy_of, loss_of, seconds_of
from steptime.analysis.machines import folders_by_machine
from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import Efficiency, StepTime, Summary, TrialSummary
from steptime.extras import require_extra
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.results.record_kinds import TIMING, TRAINING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.statistics.launch_times import LaunchTimes, is_timed, launch_times, step_times_of
from steptime.study.environment_variables import in_words
from steptime.study.study import AXES
from steptime.study.trial import Trial
from steptime.user_output import CSV, PARQUET, user_replacement

if TYPE_CHECKING:
    import polars as pl

_PIECE = 256
"""Launches that are read at once."""
_FIGURES = (StepTime, Interval, IntervalOverLaunches, Efficiency)
_NOT_EXPORTED = {"least", "most"}
_INTERVALS = {
    name: [key for key in get_type_hints(form) if not key.startswith("_") and key not in _NOT_EXPORTED]
    for name, field in TrialSummary.model_fields.items()
    if (form := get_origin(field.annotation) or field.annotation) in _FIGURES
}
"""Every figure of a trial with its interval, and what of it is a column: one that trials get later is exported too."""
_WORK = ("tokens_per_s", "flop_per_s_per_device", "mfu")
_MEMORY = ("worker_memory_bytes", "host_memory_bytes", "device_memory_bytes")
_BOUNDS = ("value", "low", "high")
_IN_ORDER = (
    *("id", "group", "framework", "framework_version", "strategy", "workload", "dataset", "loader", "device"),
    *("precision", "workers", "servers", "server_placement", "hosts", "threads", "cores_per_worker"),
    *("batch_per_worker", "loader_processes", "tuning", "implementation", "launches", "failed_launches"),
    *("steps", "status", "reason"),
)
_PLAIN = tuple(dict.fromkeys((*_IN_ORDER, *(axis.field for axis in AXES if axis.column))))
"""What is a column by itself; axes that came later are behind the others."""


def export_tables(stores: Store | Sequence[Store], folder: Path, to: Literal["parquet", "csv"]) -> list[Path]:
    """Write ``trials``, ``steps``, ``worker_steps``, ``trainings`` and ``set_aside`` to ``folder``; return the paths.

    - trials: a trial of the summary per row; ``step_time_s.mean`` becomes ``step_time_s_mean``, and so on.
    - steps: trial, launch, block, step, end_s (since the first timed step began), step_time_s, steady.
    - worker_steps: trial, launch, block, worker, host, step, end_s (of the worker's own clock, since its first timed
      step began), step_time_s (as the worker saw it).
    - trainings: an epoch of a training that ended well per row: trial, seed, epoch (from 1), accuracy and loss (of the
      validation set), seconds (of training until the epoch's end, without evaluation and checkpoints), learning_rate
      (of the epoch's last step).
    - set_aside: a line of the records that the other tables leave out per row: file, line, reason, message.

    Of several folders every table begins with the columns machine and folder: ids of trials are alike on all machines.

    Times are seconds. Raises StoreError as the store does, and when a table cannot be written; MissingExtra
    without polars.
    """
    require_extra("export")
    own = [stores] if isinstance(stores, Store) else stores
    tables = _tables(own[0]) if len(own) == 1 else _tables_of_machines(own)
    paths = []
    for name, make in tables.items():
        path = folder / f"{name}.{to}"
        with user_replacement(path, PARQUET if to == "parquet" else CSV, own[0].folder_around(path)) as file:
            _write(make(), file, to)  # its memory is what the next one needs
        paths.append(path)
    return paths


def _tables(store: Store) -> "dict[str, Callable[[], pl.DataFrame]]":
    """Return what makes each table, from columns of steps that take a third of the table's memory."""
    steps = _StepRows()
    trials = trials_table(summarise(store, steps.add))  # which reads every launch, as the steps need it
    trainings = _trainings(store)
    set_aside = _set_aside(store)  # of all that was read for the others
    return {
        "trials": lambda: trials,
        "steps": steps.launch_table,
        "worker_steps": steps.worker_table,
        "trainings": lambda: trainings,
        "set_aside": lambda: set_aside,
    }


def _tables_of_machines(stores: Sequence[Store]) -> "dict[str, Callable[[], pl.DataFrame]]":
    import polars as pl  # noqa: PLC0415 - as below

    parts: dict[str, list[pl.DataFrame]] = {}
    for each in folders_by_machine(stores):
        for name, make in _tables(each.store).items():
            table = make()
            place = [pl.lit(each.machine).alias("machine"), pl.lit(str(each.store.path)).alias("folder")]
            parts.setdefault(name, []).append(table.select(*place, pl.all()) if table.width else table)
    return {name: partial(pl.concat, own, how="diagonal_relaxed") for name, own in parts.items()}


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
    steps = _StepRows()
    for trial in store.trials():
        launches = store.iter_records(TIMING, trial.id)
        while piece := list(islice(launches, _PIECE)):
            steps.add(trial, piece, [each for each in launch_times(piece, trial.strategy) if each], of_workers=False)
    return steps.launch_table()


class _StepRows:
    """Steps of launches and of workers: their times, and once for each launch or worker what its rows repeat."""

    def __init__(self) -> None:
        self._launches: dict[str, list[_StepColumns]] = {}
        self._workers: dict[str, list[_StepColumns]] = {}

    def add(
        self, trial: Trial, launches: Sequence[Launch], reduced: Sequence[LaunchTimes], *, of_workers: bool = True
    ) -> None:
        """Take launches of a trial, which follow those of it that are there.

        Args:
            trial: what was launched.
            launches: in the order of their records.
            reduced: what those of them that timed a step were reduced to, in the same order.
            of_workers: whether the steps of workers are kept, too.
        """
        if not launches:
            return
        self._launches.setdefault(trial.id, []).append(_steps_of_launches(trial, launches, reduced))
        if of_workers:
            self._workers.setdefault(trial.id, []).append(_steps_of_workers(launches))

    def launch_table(self) -> "pl.DataFrame":
        """Return a row per step of a launch, in the order of trials' ids."""
        import polars as pl  # noqa: PLC0415 - as above

        schema = {"trial": pl.Categorical, "launch": pl.Int32, "block": pl.Int32, "step": pl.Int32}
        schema |= {"end_s": pl.Float64, "step_time_s": pl.Float64, "steady": pl.Boolean}
        return _joined(self._launches, schema, _step_columns)

    def worker_table(self) -> "pl.DataFrame":
        """Return a row per step of a worker, in the same order."""
        import polars as pl  # noqa: PLC0415 - as above

        schema = {"trial": pl.Categorical, "launch": pl.Int32, "block": pl.Int32, "worker": pl.Int32}
        schema |= {"host": pl.Categorical, "step": pl.Int32, "end_s": pl.Float64, "step_time_s": pl.Float64}
        return _joined(self._workers, schema, _worker_columns)


@dataclass(frozen=True)
class _StepColumns:
    """The steps of some launches, or of their workers, one after the other."""

    sizes: NDArray[np.int64]
    """How many steps each has."""
    seconds: NDArray[np.float64]
    """How long each step of launches took; when each of workers ended."""
    repeated: Mapping[str, Sequence[Any]]
    """What all steps of one have in common."""


def _joined(
    pieces: Mapping[str, Sequence[_StepColumns]],
    schema: Mapping[str, Any],
    columns: Callable[[_StepColumns], Mapping[str, Any]],
) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415 - as above

    frames = [pl.DataFrame(schema=schema)]
    for name in sorted(pieces):
        for steps in pieces[name]:
            trial = {"trial": _repeated([name], np.array([steps.sizes.sum()]))}
            frames.append(pl.DataFrame({**trial, **columns(steps)}, schema=schema))
    return pl.concat(frames)


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


def _steps_of_launches(trial: Trial, launches: Sequence[Launch], reduced: Sequence[LaunchTimes]) -> _StepColumns:
    """Return the steps of launches; those of them that timed a step have the next numbers of steps dropped."""
    steps = step_times_of(launches, trial.strategy)
    dropped = iter([launch.dropped for launch in reduced])
    timed = [is_timed(launch, times) for launch, times in zip(launches, steps, strict=True)]
    first = [next(dropped) if has_timed else len(times) for has_timed, times in zip(timed, steps, strict=True)]
    return _StepColumns(np.array([*map(len, steps)]), np.concatenate(steps), {**_numbers_of(launches), "first": first})


def _steps_of_workers(launches: Sequence[Launch]) -> _StepColumns:
    pairs = [(launch, worker) for launch in launches for worker in launch.workers]
    workers = [worker for _, worker in pairs]
    repeated = {
        **_numbers_of([launch for launch, _ in pairs]),
        "worker": [worker.rank for worker in workers],
        "host": [worker.host for worker in workers],
        "origin_s": [worker.origin_s for worker in workers],
    }
    sizes = np.array([len(worker.ends_s) for worker in workers], dtype=np.int64)
    return _StepColumns(
        sizes, np.fromiter(chain.from_iterable(worker.ends_s for worker in workers), np.float64), repeated
    )


def _numbers_of(launches: Sequence[Launch]) -> dict[str, Sequence[int]]:
    return {"launch": [launch.launch for launch in launches], "block": [launch.block for launch in launches]}


def _step_columns(steps: _StepColumns) -> dict[str, Any]:
    numbers = _numbers(steps.sizes)
    parts = np.split(steps.seconds, np.cumsum(steps.sizes)[:-1])
    return {
        **_integers(steps, "launch", "block"),
        "step": numbers,
        "end_s": np.concatenate([np.cumsum(part) for part in parts]),
        "step_time_s": steps.seconds,
        "steady": numbers >= np.repeat(steps.repeated["first"], steps.sizes),
    }


def _worker_columns(steps: _StepColumns) -> dict[str, Any]:
    ends, numbers = steps.seconds, _numbers(steps.sizes)
    origins = np.repeat(steps.repeated["origin_s"], steps.sizes)
    return {
        **_integers(steps, "launch", "block", "worker"),
        "host": _repeated(steps.repeated["host"], steps.sizes),
        "step": numbers,
        "end_s": ends - origins,
        "step_time_s": ends - np.where(numbers == 0, origins, np.roll(ends, 1)),
    }


def _integers(steps: _StepColumns, *names: str) -> dict[str, NDArray[np.int32]]:
    """Return what the steps of one repeat, for each step."""
    return {name: np.repeat(np.array(steps.repeated[name], dtype=np.int32), steps.sizes) for name in names}


def _numbers(sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the numbers of the steps of launches of these sizes, from 0 in each."""
    return (np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)).astype(np.int32)


def _repeated(names: Sequence[str], sizes: NDArray[np.int64]) -> "pl.Series":
    """Return each of some names so many times; a million of them need no text each."""
    import polars as pl  # noqa: PLC0415 - as above

    return pl.Series(names, dtype=pl.Categorical).gather(np.repeat(np.arange(len(names)), sizes))
