"""Whether trainings trained on every batch, by the losses and batches they kept, beside a replay of their steps."""

from collections.abc import Sequence

from steptime.catalog.choices import strategy_named
from steptime.flags import flag_text
from steptime.results.accuracy_records import TrainingRun
from steptime.results.records import Launch, Replay, WorkerSteps
from steptime.study.trial import Trial
from steptime.validity.training_evidence import differs_from_replay

_WRONG = "its trainings train something else"


def kept_losses(run: TrainingRun) -> dict[int, list[float | None]]:
    """Return the losses of all workers behind steps that a training has taken in one launch; empty in older records."""
    if run.resumed_at or not run.epochs or not all(part.losses for part in run.epochs[0]):
        return {}
    by_step: dict[int, list[float | None]] = {}
    for number, parts in enumerate(run.epochs, 1):
        own = [dict(part.losses) for part in parts]
        by_step |= {step: [each[step] for each in own] for step in own[0] if all(step in each for each in own)}
        by_step[number * run.steps_per_epoch] = [part.training_loss for part in parts]
    return dict(sorted(by_step.items()))


def can_replay_training(trial: Trial, run: TrainingRun) -> bool:
    """Say whether the steps of a training can be repeated: where workers wait for each other, and in one launch."""
    return run.status == "ok" and strategy_named(trial.strategy).synchronous and bool(kept_losses(run))


def as_launch(run: TrainingRun) -> Launch:
    """Return what a training kept in the form of a timed launch, whose steps have no ends."""
    losses = kept_losses(run)
    workers = [
        WorkerSteps(
            rank=rank,
            host="",
            warmup_ends_s=[],
            origin_s=0.0,
            ends_s=[],
            loss_first=None,
            loss_last=None,
            facts={},
            usage={},
            opened_in_s=0.0,
            losses=[(step, each[rank]) for step, each in losses.items()],
            batches=[batch for parts in run.epochs for batch in parts[rank].batches],
        )
        for rank in range(len(run.epochs[0]) if run.epochs else 0)
    ]
    shared = {name: getattr(run, name) for name in ("trial", "launch", "status", "reason", "started_at", "wall_s")}
    return Launch(**shared, environment={}, noise={}, block=0, commands=[], workers=workers)


def replays_of(run: TrainingRun, replays: Sequence[Replay]) -> list[Replay]:
    """Return the good replays of a training."""
    return [each for each in replays if each.launch == run.launch and each.reason is None]


def training_mistake(trial: Trial, runs: Sequence[TrainingRun], replays: Sequence[Replay]) -> str | None:
    """Return what good trainings of a trial show against it, by themselves or beside their replays; or None."""
    for run in runs:
        for rank in range(len(run.epochs[0])) if run.status == "ok" and run.epochs else ():
            drawn = [parts[rank].drawn for parts in run.epochs]
            steps, taken = run.steps_per_epoch * len(run.epochs), sum(each or 0 for each in drawn)
            if None not in drawn and taken < steps:
                return f"{_WRONG}: worker {rank} took {taken} batches in {steps} steps (seed {run.seed})"
        if can_replay_training(trial, run):
            difference = differs_from_replay(trial, as_launch(run), replays_of(run, replays))
            if difference:
                return f"{_WRONG}:{difference.partition(':')[2]} (seed {run.seed})"
    return None


def training_flags(trial: Trial, runs: Sequence[TrainingRun], replays: Sequence[Replay]) -> list[str]:
    """Return the flag of a trial with trainings of which no step was repeated."""
    able = [run for run in runs if can_replay_training(trial, run)]
    without = [run for run in able if not replays_of(run, replays)]
    if not without:
        return []
    failed = next(
        (each.reason for each in replays if each.reason and each.launch in {run.launch for run in without}), None
    )
    why = failed or "run the study again"
    lacking = f"replays.jsonl has no replay of {len(without)} of {len(able)} trainings"
    return [flag_text("unrepeated", why=f"{lacking}; {why}")]
