"""Where the whole time of a job goes: of trainings, and of a user's own script.

The share of steps that count is its goodput, in the meaning of ml-goodput-measurement: whatever else the job does,
from its start to its end, is badput. Steps that a failure threw away are not counted.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from steptime.attached.form import AttachedRun
from steptime.diagnosis.form import JobAccount, JobUse
from steptime.results.accuracy_records import TrainingRun, WorkerEpoch
from steptime.results.json_form import Interval
from steptime.results.record_kinds import TRAINING
from steptime.results.store import Store
from steptime.statistics.interval import LEVEL, t_quantile

STEPS = "steps"
USES = ("start_up", "compilation", STEPS, "evaluation", "checkpoint", "held_up", "restart")
"""Of a training, in this order. `compilation` is what the first epoch takes longer than the later ones in the median,
with caches and all else that comes once; `held_up` is waiting for the slowest worker's evaluation and checkpoint.
Waiting for input is within steps: only a breakdown can tell it."""


def job_accounts(store: Store, attached: AttachedRun | None = None) -> list[JobAccount]:
    """Return the accounts of all trainings of a folder, one for each trial, and of a user's own script."""
    found = [account for trial in store.trials() if trial.training and (account := _of_trial(store, trial.id))]
    return [*found, *([attached_account(attached)] if attached and attached.job else [])]


def attached_account(run: AttachedRun) -> JobAccount:
    """Return the account of a user's own script, whose parts are those of its ranks on average."""
    uses = [JobUse(name=part.name, seconds=part.time_s, share=part.share) for part in run.job]
    share = sum(use.share for use in uses if use.name == STEPS)
    total = sum(use.seconds for use in uses)
    return JobAccount(trial=None, jobs=1, total_s=total, uses=uses, goodput=Interval(share, None, None))


def _of_trial(store: Store, trial: str) -> JobAccount | None:
    runs = store.records(TRAINING, trial)
    # Of repeated trainings of one seed the last counts, as in the summary.
    good = {run.seed: run for run in runs if run.status == "ok"}
    return training_account(
        trial,
        [(run, [each for each in runs if each.seed == seed and each.status != "ok"]) for seed, run in good.items()],
    )


def training_account(trial: str, jobs: Sequence[tuple[TrainingRun, Sequence[TrainingRun]]]) -> JobAccount | None:
    """Return the account of a trial's trainings: each with its launches that failed, of which the last went on."""
    if not jobs:
        return None
    seconds = [_uses(run, failed) for run, failed in jobs]
    totals = [sum(each.values()) for each in seconds]
    shares = [each[STEPS] / total for each, total in zip(seconds, totals, strict=True)]
    uses = [
        JobUse(
            name=name,
            seconds=fmean(each[name] for each in seconds),
            share=fmean(each[name] / total for each, total in zip(seconds, totals, strict=True)),
        )
        for name in USES
        if any(each[name] > 0.0 for each in seconds)
    ]
    return JobAccount(trial=trial, jobs=len(jobs), total_s=fmean(totals), uses=uses, goodput=_over_seeds(shares))


def _uses(run: TrainingRun, failed: Sequence[TrainingRun]) -> Mapping[str, float]:
    epochs = [_slowest(each) for each in run.epochs]
    trained = [each["trained"] for each in epochs]
    usual = median(trained[1:]) if len(trained) > 1 else trained[0]
    compiled = max(0.0, trained[0] - usual)
    evaluated, saved = (sum(each[name] for each in epochs) for name in ("evaluated", "saved"))
    held_up = sum(each["held_up"] for each in epochs)
    before = epochs[: run.resumed_at]
    kept = sum(each["trained"] + each["evaluated"] + each["saved"] + each["held_up"] for each in before)
    own = sum(trained) + evaluated + saved + held_up - kept
    lost = max(0.0, sum(each.wall_s for each in failed) - kept)
    return {
        "start_up": max(0.0, run.wall_s - own),
        "compilation": compiled,
        STEPS: sum(trained) - compiled,
        "evaluation": evaluated,
        "checkpoint": saved,
        "held_up": held_up,
        "restart": lost,
    }


def _slowest(workers: Sequence[WorkerEpoch]) -> dict[str, float]:
    """Return an epoch as the mean worker spent it; it lasts as long as the slowest worker's."""
    mean = {
        "trained": fmean(each.trained_s for each in workers),
        "evaluated": fmean(each.evaluated_s for each in workers),
        "saved": fmean(each.saved_s for each in workers),
    }
    longest = max(each.trained_s + each.evaluated_s + each.saved_s for each in workers)
    return {**mean, "held_up": max(0.0, longest - sum(mean.values()))}


def _over_seeds(shares: Sequence[float]) -> Interval:
    value = fmean(shares)
    if len(shares) == 1:
        return Interval(value, None, None)
    half_width = float(t_quantile(len(shares) - 1, LEVEL)) * stdev(shares) / len(shares) ** 0.5
    return Interval(value, max(0.0, value - half_width), min(1.0, value + half_width))
