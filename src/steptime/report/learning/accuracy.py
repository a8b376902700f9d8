"""What trainings reached: final accuracy over seeds, time to target and speed, best first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from steptime.analysis.accuracy import AccuracyPlace, OverSeeds, TrainingSummary
from steptime.analysis.summary_form import Summary, TrialSummary
from steptime.document.number_format import INCONCLUSIVE, UNKNOWN, Shown, count, is_settled, number
from steptime.units import format_seconds

EXPLANATION = (
    "Every number is the mean over seeds with Student's 95 % interval, or the range of the seeds where the ends of "
    "that interval differ by more than four times (inconclusive). The final accuracy is that after the last "
    "epoch; the best one was chosen by looking at the validation set, and is optimistic. Differences pair the "
    "trainings of the same seed; = marks those whose interval holds 0. Seconds are of training, without evaluation and "
    "checkpoints; time to accuracy is of the seeds that reached the target, whose number is given."
)


@dataclass(frozen=True)
class AccuracyRow:
    """One trained trial."""

    name: str
    trial: TrialSummary
    found: TrainingSummary
    rank: str
    first: bool
    """Whether it is the best."""
    leads: bool
    """Whether it is the best, or tied with it."""
    final: str
    """Accuracy, or the loss where there is none."""
    best: str
    loss: str
    difference: str
    to_target: str
    seconds: str
    rate: str

    @property
    def global_batch(self) -> int:
        """Samples per step over all workers."""
        return self.trial.workers * self.trial.batch_per_worker

    @property
    def line(self) -> str:
        """All of it in one sentence, for a terminal."""
        parts = [f"{self.rank} {self.name}: final {self.final}"]
        if self.difference:
            parts.append(f"{self.difference} against the best")
        if self.best:
            parts.append(f"best epoch {self.best}")
        reached = f"time to accuracy: {self.to_target}" if self.to_target else ""
        parts += [f"loss {self.loss}", reached, f"{self.seconds} of training", f"{self.rate} samples/s"]
        if self.found.diverged:
            parts.append(f"{self.found.diverged} of {count(len(self.found.seeds), 'seed')} diverged")
        if self.found.staleness is not None:
            parts.append(f"mean staleness {self.found.staleness:.2g}")
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class AccuracyGroup:
    """The trained trials of one workload and dataset."""

    title: str
    rows: list[AccuracyRow]


def accuracy_groups(summary: Summary) -> list[AccuracyGroup]:
    """Return the groups of trained trials, in the order of the summary."""
    trials = {trial.id: trial for trial in summary.trials}
    found = []
    for title in dict.fromkeys(place.group for place in summary.accuracy):
        places = [place for place in summary.accuracy if place.group == title]
        names = training_names([trials[place.trial] for place in places])
        shared = list(takewhile(lambda place: place.rank == 1 or place.tied_with_best, places))
        found.append(
            AccuracyGroup(
                title, [_row(place, trials[place.trial], names[place.trial], len(shared)) for place in places]
            )
        )
    return found


_FACTS: dict[str, Callable[[TrialSummary, TrainingSummary], str]] = {
    "framework": lambda trial, _: f"{trial.framework} {trial.strategy}",
    "workers": lambda trial, _: count(trial.workers, "worker"),
    "batch": lambda trial, _: f"batch {trial.workers * trial.batch_per_worker}",
    "loader": lambda trial, _: f"{trial.loader} loader",
    "precision": lambda trial, _: trial.precision,
    "optimizer": lambda _, found: str(found.optimizer["name"]),
    "rate": lambda _, found: f"rate {found.optimizer['learning_rate']:g}",
    "schedule": lambda _, found: found.schedule,
    "scaling": lambda _, found: "unscaled rate" if found.scaling_rule == "none" else f"{found.scaling_rule} scaling",
    "warm-up": lambda _, found: f"warm-up {found.warmup_epochs}",
}


def training_names(trials: Sequence[TrialSummary]) -> dict[str, str]:
    """Return the differences of trained trials, by id: the framework, and every fact in which they differ."""
    return _names(trials, always=("framework",))


def brief_names(trials: Sequence[TrialSummary], without: Sequence[str] = ()) -> dict[str, str]:
    """Return every fact in which trained trials differ, by id, for legends; ``without`` those that an axis shows."""
    return _names(trials, without=without)


def shared_names(
    trials: Sequence[TrialSummary], *, always: Sequence[str] = (), without: Sequence[str] = ()
) -> dict[str, str]:
    """Return the facts in which trained trials differ but for those ``without``, by id; some have a name in common."""
    known = [name for name in _FACTS if name not in without]
    facts = {
        trial.id: {name: _FACTS[name](trial, trial.training) for name in known} for trial in trials if trial.training
    }
    shown = [name for name in known if name in always or len({own[name] for own in facts.values()}) > 1] or known[:1]
    return {key: ", ".join(own[name] for name in shown) for key, own in facts.items()}


def _names(
    trials: Sequence[TrialSummary], *, always: Sequence[str] = (), without: Sequence[str] = ()
) -> dict[str, str]:
    names = shared_names(trials, always=always, without=without)
    repeated = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {key: f"{name} [{key.rpartition('-')[2]}]" if name in repeated else name for key, name in names.items()}


def final_value(found: TrainingSummary) -> Shown:
    """``98.61 % (98.40 to 98.82)``, or the loss where nothing is right or wrong."""
    if found.final_accuracy is None:
        return _over_seeds(found.final_loss, number)
    return _share(found.final_accuracy)


def _share(value: OverSeeds | None) -> Shown:
    return _over_seeds(value, lambda each: f"{100 * each:.2f}", " %")


def _over_seeds(value: OverSeeds | None, write: Callable[[float], str], unit: str = "") -> Shown:
    """Return a number with its interval, or, where that is not settled, with the range of the seeds."""
    if value is None:
        return Shown(UNKNOWN, "")
    if not is_settled(value) and value.least is not None and value.most is not None:
        return Shown(INCONCLUSIVE, f"seeds: {write(value.least)} to {write(value.most)}{unit}")
    return _interval(value, write, unit)


def _interval(value: OverSeeds, write: Callable[[float], str], unit: str = "") -> Shown:
    text = write(value.value) + unit
    return Shown(text, "" if value.low is None or value.high is None else f"{write(value.low)} to {write(value.high)}")


def _row(place: AccuracyPlace, trial: TrialSummary, name: str, shared: int) -> AccuracyRow:
    """Return a row of a group of which so many ``shared`` the first rank."""
    found = trial.training
    if found is None:
        message = f"{trial.id} has a place and no training"
        raise ValueError(message)
    kind = "" if found.final_accuracy else "loss "
    return AccuracyRow(
        name=name,
        trial=trial,
        found=found,
        rank=_rank(place, shared),
        first=place.rank == 1,
        leads=place.rank == 1 or place.tied_with_best,
        final=f"{kind}{final_value(found).line}, {count(len(found.seeds), 'seed')}",
        best=_share(found.best_accuracy).line if found.best_accuracy else "",
        loss=_over_seeds(found.final_loss, number).line,
        difference=_difference(place, found),
        to_target=_to_target(found),
        seconds=_over_seeds(found.training_s, format_seconds).line,
        rate=_over_seeds(found.samples_per_s, number).line,
    )


def _rank(place: AccuracyPlace, shared: int) -> str:
    """Return the rank, as ``RankedGroup.rank`` has it."""
    if place.rank <= shared:
        return "1=" if shared > 1 else "1"
    return f"{place.rank}{'=' if place.tied_with_best else ''}"


def _difference(place: AccuracyPlace, found: TrainingSummary) -> str:
    if place.rank == 1 or place.difference_to_best is None:
        return ""
    difference = place.difference_to_best
    if found.final_accuracy is None:
        return _interval(difference, number).line
    return _interval(difference, lambda each: f"{100 * each:+.2f}", " points").line


def _to_target(found: TrainingSummary) -> str:
    if found.target_accuracy is None:
        return ""
    of = f"{found.reached_target} of {len(found.seeds)} reached {100 * found.target_accuracy:g} %"
    if found.seconds_to_target is None or found.samples_to_target is None:
        return of
    seconds = _over_seeds(found.seconds_to_target, format_seconds).line
    known = f", {found.samples_to_target.value:.0f} samples" if is_settled(found.samples_to_target) else ""
    return f"{of} in {seconds}{known}"
