"""Tables of measured scaling curves: from a CSV file to curves, or to all mistakes with their lines and columns.

Evidence about published curves needs every column. A user's own curve needs the number of workers and a step time or
throughput; every other column makes its prediction better.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import geometric_mean, variance

from steptime.curves.contradictions import disagreeing_rows, jumps, long_steps, one_batch, one_throughput
from steptime.curves.curve import FIT, HOLDOUT, EvidenceError, Point, ScalingCurve, Setup, error_of_mean
from steptime.curves.curve_row import TIMES, CurveRow
from steptime.curves.rows import Rows, read_rows, some_of

COLUMNS = (
    "curve", "source", "framework", "strategy", "workload", "data", "precision", "accelerator", "workers_per_host",
    "intra_host_link", "transport", "inter_host_gbps", "nics_per_host", "parameter_servers", "batch_per_worker",
    "workers", "throughput_samples_per_s", "role",
)  # fmt: skip
"""Every column that a table of evidence must have.

There may also be ``stack``, ``parameters``, ``active_parameters``, ``tokens_per_sample``, ``exchange``, ``messages``,
``value_bytes``, ``sharded_over``, ``accumulation``, ``tensor_parallel``, ``input_store``, ``input_samples_per_s``,
``time_includes``, ``repetitions``, ``sd_percent``, ``cores_per_host`` and ``threads_per_worker``; further columns are
ignored.
"""

OWN_CURVE = {"source": "own", "strategy": "allreduce", "role": FIT}
"""Values of columns that the table of a user's own curve leaves out or empty."""
_ENDS = ((min, 0.5), (max, -0.5))
"""Of batches of all workers, which those of a worker leave open that are rounded."""
_NUMBERS = frozenset({
    *TIMES, "workers", "workers_per_host", "inter_host_gbps", "nics_per_host", "parameter_servers",
    "batch_per_worker", "parameters", "active_parameters", "tokens_per_sample", "value_bytes", "sharded_over",
    "accumulation", "tensor_parallel", "input_samples_per_s", "repetitions", "sd_percent", "cores_per_host",
    "threads_per_worker",
})  # fmt: skip
_OTHER_NAMES = {
    "workers": ("gpus", "ranks", "devices", "processes", "num_workers", "world_size", "n"),
    "throughput_samples_per_s": (
        "images_per_sec",
        "images_per_second",
        "samples_per_sec",
        "throughput",
        "images/sec",
        "images/s",
        "img/sec",
        "img/s",
        "samples/s",
        "samples/sec",
        "imgs_per_sec",
    ),  # as logs have them
    "batch_per_worker": ("batch_size", "batch", "global_batch", "local_batch"),
}
_OTHER_UNITS = {
    **dict.fromkeys(
        ("step_time_ms", "ms", "ms/step", "time/step", "time_ms", "iteration_ms", "ms_per_step", "latency_ms"),
        "divided by 1000",
    ),
    **dict.fromkeys(("step_time", "time", "time_s", "seconds", "s_per_step", "iteration_time", "s/it"), "in seconds"),
    **dict.fromkeys(("it/s", "steps_per_s", "steps_per_sec", "iterations_per_s"), "1 / it"),
    **dict.fromkeys(("epoch_time", "epoch_time_s", "epoch_time_sec"), "divided by the steps of an epoch"),
}
"""What other tables call the columns, to be asked for: some mean a device's, some all devices' together."""


def read_own_curves(path: Path) -> list[ScalingCurve]:
    """Return the curves of a user's own CSV, which needs few columns.

    ``workers`` and one of ``step_time_s`` and ``throughput_samples_per_s`` with ``batch_per_worker`` must be there;
    ``OWN_CURVE`` describes what other columns mean where they are left out.

    Raises:
        EvidenceError: the file cannot be read, lacks columns or has wrong values; all mistakes with their lines.
    """
    header, rows = read_rows(path, (*COLUMNS, *TIMES), _NUMBERS)
    needed = ["workers", *([] if "step_time_s" in header else ["throughput_samples_per_s", "batch_per_worker"])]
    missing = [column for column in needed if column not in header]
    if missing:
        message = (
            f"{path}, line 1: the table lacks the columns {', '.join(missing)}; a scaling curve needs workers, and "
            "either step_time_s or throughput_samples_per_s (of all workers) with batch_per_worker"
        )
        raise EvidenceError("; ".join([message, *_near_columns(header, missing)]))
    defaults = {**OWN_CURVE, "curve": path.stem}
    filled = [(line, {**row, **{key: row.get(key) or value for key, value in defaults.items()}}) for line, row in rows]
    curves = _curves_of(path, filled, merge=True)
    mistakes = [
        f"{path}, curve {curve.name}: {sentence}"
        for curve in curves
        for sentence in (
            disagreeing_rows(_with_two_times(filled, curve.name)),
            *jumps(curve),
            one_batch(curve) if "step_time_s" in header else one_throughput(curve),
        )
        if sentence
    ]
    if mistakes:
        raise EvidenceError(some_of(mistakes))
    asked = [long_steps({line: row for line, row in filled if row["curve"] == curve.name}) for curve in curves]
    return [replace(curve, notes=(*curve.notes, *own)) for curve, own in zip(curves, asked, strict=True)]


def _near_columns(header: Sequence[str], missing: Sequence[str]) -> list[str]:
    """Return what to make of columns that a table has instead of those that are missing."""
    asked = []
    if "workers" in missing and "nodes" in header:
        asked.append("write nodes x workers of each node as workers")
    if "step_time_s" not in header and (given := next((name for name in header if name in _OTHER_UNITS), None)):
        asked.append(f"write {given!r} as step_time_s, {_OTHER_UNITS[given]}")
        missing = [column for column in missing if column == "workers"]
    near = {column: next((name for name in _OTHER_NAMES[column] if name in header), None) for column in missing}
    return asked + [f"rename {name!r} to {column}, if that is what it is" for column, name in near.items() if name]


def _with_two_times(rows: Rows, curve: str) -> dict[int, dict[str, str]]:
    """Return the rows of a curve that have a step time and a throughput, but no batch, by their lines."""
    return {
        line: row
        for line, row in rows
        if row["curve"] == curve and all(row.get(column) for column in TIMES) and not row.get("batch_per_worker")
    }


def read_curves(path: Path) -> list[ScalingCurve]:
    """Return the curves of a CSV in the order of their first rows.

    Raises:
        EvidenceError: the file cannot be read, lacks columns or has wrong values; all mistakes with their lines.
    """
    header, rows = read_rows(path, (*COLUMNS, *TIMES), _NUMBERS)
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        message = f"{path}: the table lacks the columns {', '.join(missing)}; it must have {', '.join(COLUMNS)}"
        raise EvidenceError(message)
    return _curves_of(path, rows)


def _curves_of(path: Path, rows: Rows, *, merge: bool = False) -> list[ScalingCurve]:
    mistakes: list[str] = []
    read = [row for line, values in rows if (row := CurveRow(f"{path}, line {line}", values, mistakes).point())]
    curves = _group_by_curve(path, read, mistakes, merge=merge) if not mistakes else []
    if mistakes:
        raise EvidenceError(some_of(mistakes))
    return curves


def _merged(members: list[tuple[str, Setup, Point]]) -> tuple[list[tuple[str, Setup, Point]], list[str]]:
    """Return members with one point for each number of workers and role, and a sentence for each that had several."""
    grouped: dict[tuple[int, str], list[tuple[str, Setup, Point]]] = {}
    for member in members:
        grouped.setdefault((member[2].workers, member[0]), []).append(member)
    measured = [[point.step_time for _, _, point in same] for same in grouped.values()]
    degrees = sum(map(len, measured)) - len(measured)
    # Rows of one number of workers are few, and those of a curve differ as much from run to run.
    spread = sum((len(seconds) - 1) * variance(map(log, seconds)) for seconds in measured if len(seconds) > 1)
    deviation = (spread / degrees) ** 0.5 if degrees else 0.0
    found, sentences = [], []
    for ((workers, role), same), seconds in zip(grouped.items(), measured, strict=True):
        error = max(point.error for _, _, point in same)
        if len(same) > 1:
            error = max(error, error_of_mean(deviation, len(same), degrees))
            apart = max(seconds) / min(seconds)
            times = f"{len(same)} times, {apart:.3g} times apart"
            sentences.append(f"{workers} workers were measured {times}; their geometric mean counts")
        found.append((role, same[0][1], replace(same[0][2], step_time=geometric_mean(seconds), error=error)))
    return found, sentences


def _sharing_one_batch(members: list[tuple[str, Setup, Point]]) -> list[tuple[str, Setup, Point]]:
    """Return members without batches of workers where these differ and make one batch of all, to a sample of each."""
    batches = [(setup.batch_per_worker, point.workers) for _, setup, point in members]
    known = [(own, workers) for own, workers in batches if own is not None]
    if len(known) < len(batches) or len({own for own, _ in known}) == 1:
        return members
    least, most = (choose(own * workers + slack * workers for own, workers in known) for choose, slack in _ENDS)
    if least < most:
        return members
    whole = max(own * workers for own, workers in known)
    return [
        (role, replace(setup, batch_per_worker=None, one_batch=True, global_batch=whole), point)
        for role, setup, point in members
    ]


def _setup_mistakes(rows: Sequence[tuple[str, Setup, Point]]) -> Iterator[str]:
    """Yield in what the rows of a curve differ beside the number of workers."""
    setups = {setup for _, setup, _ in rows}
    if len(setups) > 1:
        columns = [key for key in vars(next(iter(setups))) if len({getattr(setup, key) for setup in setups}) > 1]
        yield (
            f"its rows differ in {', '.join(columns)}; rows of a curve differ in workers only (and in "
            "batch_per_worker where all workers share one batch): name each curve in a column curve"
        )


def _count_mistakes(members: Sequence[tuple[str, Setup, Point]]) -> Iterator[str]:
    """Yield what a curve's worker counts and roles lack to be fitted."""
    counts = [point.workers for _, _, point in members]
    twice = sorted({count for count in counts if counts.count(count) > 1})
    if twice:
        yield f"{', '.join(map(str, twice))} workers are there more than once; keep one row"
    elif len(counts) == 1:
        yield "it has a single worker count; measure at least one more, or leave it out"
    if not any(role == FIT for role, _, _ in members):
        yield f"no row has the role {FIT}; nothing could be fitted"


def _group_by_curve(
    path: Path, rows: list[tuple[str, str, Setup, Point]], mistakes: list[str], *, merge: bool
) -> list[ScalingCurve]:
    grouped: dict[str, list[tuple[str, Setup, Point]]] = {}
    for name, role, setup, point in rows:
        grouped.setdefault(name, []).append((role, setup, point))
    curves = []
    for name, rows_as_read in grouped.items():
        rows_of_curve = _sharing_one_batch(rows_as_read) if merge else rows_as_read
        members, repeated = _merged(rows_of_curve) if merge else (rows_of_curve, [])
        place = f"{path}, curve {name}"
        mistakes += [f"{place}: {mistake}" for mistake in _setup_mistakes(rows_of_curve)]
        mistakes += [f"{place}: {mistake}" for mistake in _count_mistakes(members)]
        ordered = sorted(members, key=lambda member: member[2].workers)
        curves.append(
            ScalingCurve(
                name=name,
                setup=members[0][1],
                fit=tuple(point for role, _, point in ordered if role == FIT),
                holdout=tuple(point for role, _, point in ordered if role == HOLDOUT),
                notes=tuple(repeated),
            )
        )
    return curves
