"""Makes summaries of trainings, with everything that their figures show."""

from summaries import summary, trial

from steptime.analysis.accuracy import AccuracyPlace, EpochPoint, OverSeeds, TrainingSummary
from steptime.study.training import full_parameters

GROUP = "lenet5 (1x28x28), digits, a stratified fifth held out"


def over(value, seeds=5, half=0.004):
    """A number over seeds, with an interval where there is more than one."""
    if seeds == 1:
        return OverSeeds(value=value, seeds=1)
    return OverSeeds(value=value, low=value - half, high=min(1.0, value + half), seeds=seeds)


def trained(number, schedule="cosine", *, seeds=5, final=0.98, accuracy=True, warmup=0, epochs=12, **changes):  # noqa: PLR0913
    """A trained trial that reached ``final``."""
    own = {name: changes.pop(name) for name in ("scaling_rule", "staleness", "optimizer") if name in changes}
    curve = [
        EpochPoint(
            epoch=epoch,
            accuracy=over(final - 0.5 / epoch**2, seeds) if accuracy else None,
            loss=over(0.05 + 1.0 / epoch, seeds),
            seconds=1.5 * epoch,
            learning_rate=0.05 * (1.0 if epoch < 7 else 0.1),
        )
        for epoch in range(1, epochs + 1)
    ]
    found = TrainingSummary(
        **{"optimizer": {"name": "sgd", "learning_rate": 0.05}, "scaling_rule": "none", **own},
        learning_rate=0.05,
        rate_schedule={"name": schedule, "parameters": full_parameters(schedule, {})},
        schedule=schedule,
        warmup_epochs=warmup,
        label_smoothing=0.0,
        epochs=epochs,
        steps_per_epoch=45,
        target_accuracy=None,
        seeds=list(range(seeds)),
        diverged=0,
        final_accuracy=over(final, seeds) if accuracy else None,
        best_accuracy=over(final, seeds) if accuracy else None,
        final_loss=over(0.13, seeds),
        training_s=over(18.0, seeds),
        samples_per_s=over(950.0, seeds),
        curve=curve,
    )
    return trial(rate=None, status="ok", id=f"t-{number:08x}", training=found, **changes)


def trainings(*trials):
    """The summary of a study of ``trials``, best first."""
    places = [
        AccuracyPlace(
            group=GROUP,
            rank=rank,
            trial=each.id,
            difference_to_best=None if rank == 1 else over(-0.002),
            tied_with_best=rank < 3,
        )
        for rank, each in enumerate(trials, 1)
    ]
    return summary(trials, [], accuracy=places)


def schedules():
    """Nine schedules by one and two workers, of which one has a single seed; batches differ, rules and warm-up too."""
    names = ["cosine", "step", "plateau", "one_cycle", "polynomial", "constant", "multi_step", "exponential"]
    alone = [trained(i, name, final=0.985 - 0.001 * i, workers=1) for i, name in enumerate(names)]
    alone.append(trained(20, "cosine_restarts", seeds=1, final=0.96, workers=1))
    rules = [("none", 0), ("linear", 0), ("linear", 5)]
    pairs = [
        trained(30 + i, "cosine", scaling_rule=rule, warmup=warmup, final=0.975 - 0.001 * i)
        for i, (rule, warmup) in enumerate(rules)
    ]
    return trainings(*alone, *pairs)


def asynchronous():
    """Three asynchronous trials of two frameworks, and one whose updates are never stale."""
    return trainings(
        trained(1, framework="pytorch"),
        trained(2, framework="pytorch", strategy="ps_async", staleness=0.9, final=0.97),
        trained(3, framework="mxnet", strategy="ps_async", staleness=1.0, final=0.968),
        trained(4, framework="mxnet", strategy="ps_async", staleness=2.8, final=0.95, workers=4),
    )
