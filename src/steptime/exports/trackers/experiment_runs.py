"""A run as a run of MLflow, of Weights & Biases (for ``wandb sync`` where no account is known) or of TensorBoard."""

import io
import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.exports.trackers.tracked_run import OF_WINDOWS, WHOLE, WINDOWS, TrackedRun, full_address, plain_name
from steptime.plain_file import PlainFolder

if TYPE_CHECKING:
    from mlflow import MlflowClient

_MOST = 500
"""Metrics of a request; the server takes 1,000."""
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""Unless the user sets them: a server that is not there would be asked for minutes."""
_PROJECT = "steptime"
_AXIS = "steptime_step"
_WAIT_S = 60.0


def write_mlflow(run: TrackedRun, target: str | None) -> str:
    """Write a run to MLflow; return where it is.

    Args:
        run: what is written.
        target: the tracking URI; None: that of MLflow's own settings.
    """
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    import mlflow
    from mlflow.entities import Metric, Param

    place = full_address(target) if target else mlflow.get_tracking_uri()
    client = mlflow.MlflowClient(tracking_uri=place)
    name, number = _experiment(client)
    tags = {"mlflow.note.content": run.text, "steptime.page": run.page}
    tags |= {f"steptime.finding.{order}.{finding.kind}": finding.sentence for order, finding in enumerate(run.findings)}
    made = client.create_run(number, start_time=_milliseconds(run.begin_s), tags=tags, run_name=run.name)
    key = made.info.run_id
    client.log_batch(key, params=[Param(f"steptime.{name}", value) for name, value in run.about.items()])
    metrics = [Metric(value.name, value.seconds, _milliseconds(value.at_s), value.step) for value in run.values]
    for first in range(0, len(metrics), _MOST):
        client.log_batch(key, metrics=metrics[first : first + _MOST])
    client.set_terminated(key, end_time=_milliseconds(run.end_s))
    return f"run {key} of experiment {name} at {place}"


def _experiment(client: "MlflowClient") -> tuple[str, str]:
    """Return name and number of the experiment that MLflow's variables ask for, by name before number as MLflow does.

    One that is named and not there is made.
    """
    name, number = (os.environ.get(f"MLFLOW_EXPERIMENT_{each}") for each in ("NAME", "ID"))
    if number and not name:
        return client.get_experiment(number).name, number
    name = name or _PROJECT
    experiment = client.get_experiment_by_name(name)
    return name, experiment.experiment_id if experiment else client.create_experiment(name)


def _milliseconds(seconds: float) -> int:
    return round(1000.0 * seconds)


def write_wandb(run: TrackedRun, target: str | None) -> str:
    """Write a run to Weights & Biases; return where it is.

    Its own files lie in WANDB_DIR or the working directory: they hold links, which results must not.

    Args:
        run: what is written.
        target: the project; None: that of WANDB_PROJECT, else ``steptime``.
    """
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    mode = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False, verify=False) else "offline")
    settings = wandb.Settings(
        silent=True,
        mode=mode,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        init_timeout=_WAIT_S,
        finish_timeout=_WAIT_S,
        finish_timeout_raises=True,  # said in a line, and the command is over all the same
    )
    made = wandb.init(
        project=target or os.environ.get("WANDB_PROJECT", _PROJECT),
        name=run.name,
        notes=run.text,
        tags=sorted({finding.kind for finding in run.findings}),
        config={**run.about, "page": run.page},
        settings=settings,
    )
    made.define_metric(_AXIS, hidden=True)
    made.define_metric(f"{OF_WINDOWS}/*", step_metric=_AXIS)
    of_windows = [value for value in run.values if value.scope == WINDOWS]
    for step, values in itertools.groupby(of_windows, key=lambda value: value.step):
        made.log({_AXIS: step, **{value.name: value.seconds for value in values}})
    made.summary.update({value.name: value.seconds for value in run.values if value.scope == WHOLE})
    place, url = Path(made.dir).parent, made.url
    made.finish()
    return str(url) if mode == "online" else f"wandb sync {place}"


def write_tensorboard(run: TrackedRun, target: str | None, folder: Path) -> str:
    """Write a run for TensorBoard; return what to show.

    Args:
        run: what is written.
        target: a folder of runs; None: ``tensorboard`` in the results folder.
        folder: of results.
    """
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    root = Path(target) if target else folder / "tensorboard"
    place = root / f"steptime-{plain_name(run.name)}"
    first = min((value.step for value in run.values), default=0)
    events = [
        Event(wall_time=run.begin_s, file_version="brain.Event:2"),
        # What an earlier export of this run wrote is put aside, as purge_step does: TensorBoard reads files by name.
        Event(wall_time=run.begin_s, step=first, session_log=SessionLog(status=SessionLog.START)),
        *(
            Event(wall_time=value.at_s, step=value.step, summary=scalar_pb(value.name, value.seconds))
            for value in run.values
        ),
        Event(wall_time=run.end_s, step=first, summary=text_pb("steptime/findings", run.text)),
    ]
    file = io.BytesIO()
    writer = RecordWriter(file)
    for event in events:
        writer.write(event.SerializeToString())
    PlainFolder(root).put(place / f"events.out.tfevents.{time.time_ns()}.steptime", file.getvalue())
    return f"tensorboard --logdir {root}"
