"""The loader verdict on made-up measurements whose truth is planted: how long loading and training take."""

from collections.abc import Sequence

import numpy as np
import pytest
from simulated import ENDED, a_trial

from steptime.analysis.loader_form import LoaderVerdict
from steptime.analysis.loader_verdict import MeasuredLoading, _draws, loader_verdicts
from steptime.results.loader_records import LoaderLaunch, LoaderStretch, PageCache, WorkerLoading
from steptime.statistics.estimate import Estimate
from steptime.study.trial import Trial

BATCH = 10


def trial(loader: str = "native", processes: int = 0, **changes: object) -> Trial:
    fields = {
        "workload": "lenet5",
        "input_shape": (3, 28, 28),
        "classes": 18,
        "dataset": None if loader == "synthetic" else "photos",
        "loader": loader,
        "loader_processes": processes,
        "batch_per_worker": BATCH,
        "cores_per_worker": 4,
    }
    return a_trial(**{**fields, **changes})


def step(seconds: float, width: float = 0.01) -> Estimate:
    low, high = seconds / (1 + width), seconds * (1 + width)
    return Estimate(
        mean=seconds,
        low=low,
        high=high,
        level=0.95,
        median=seconds,
        p90=seconds,
        p99=seconds,
        stalls=None,
        steps=100,
        dropped=0,
        launches=[],
    )


def stretch(name: str, batch_s: float, cpu_s: float) -> LoaderStretch:
    ends = [batch_s * number for number in range(1, 21)]
    usage = {"cpu_s": 20 * cpu_s, "helpers_cpu_s": 0.0, "memory_bytes": 1e8, "helpers_memory_bytes": 0.0}
    return LoaderStretch(name, 0.0, ends, usage)  # type: ignore[arg-type]


def alone(of: Trial, batch_s: float, *, first_s: float | None = None, ahead: int = 0) -> list[LoaderLaunch]:
    """Three launches of a loader that takes ``batch_s`` for a batch, give or take a percent, all on the processor."""
    launches = []
    for number, factor in enumerate((0.99, 1.0, 1.01)):
        stretches = [
            stretch("first", (first_s or batch_s) * factor, batch_s),
            stretch("later", batch_s * factor, batch_s),
        ]
        workers = [WorkerLoading(rank, "here", stretches, 20, ahead, {}) for rank in range(of.workers)]
        cache = PageCache(1.0, 0.0, 100)
        launches.append(LoaderLaunch(trial=of.id, launch=number, workers=workers, page_cache=cache, **ENDED))
    return launches


def verdict(training_s: float, rows: Sequence[MeasuredLoading], cores: float = 8) -> LoaderVerdict:
    settings = {"workers": rows[0].trial.workers, "cores_per_worker": rows[0].trial.cores_per_worker}
    training = MeasuredLoading(trial("synthetic", **settings), step(training_s), [training_s] * 3, [])
    (found,) = loader_verdicts([training, *rows], cores)
    return found


def loading(batch_s: float, step_s: float, of: Trial | None = None, ahead: int = 0) -> MeasuredLoading:
    chosen = of or trial()
    return MeasuredLoading(chosen, step(step_s), [step_s] * 3, alone(chosen, batch_s, ahead=ahead))


def test_a_loader_that_sleeps_longer_than_a_step_limits():
    (row,) = verdict(0.1, [loading(0.3, 0.4)]).rows

    assert row.limit == "loader"
    assert row.loading_over_training.value == pytest.approx(3.0, rel=0.03)


def test_a_loader_faster_than_training_does_not_limit():
    (row,) = verdict(0.1, [loading(0.02, 0.1, ahead=2)]).rows

    assert row.limit == "training"


def test_a_loader_as_fast_as_training_is_not_shown_to_limit():
    (row,) = verdict(0.1, [loading(0.1, 0.2)]).rows

    assert row.limit == "undecided"


def test_a_step_that_loads_its_own_batch_is_predicted_to_take_both_times():
    (row,) = verdict(0.1, [loading(0.3, 0.4)]).rows

    assert row.predicted_step_s.value == pytest.approx(0.4, rel=0.03)


def test_a_step_with_batches_made_ahead_is_predicted_to_take_the_longer_time():
    (row,) = verdict(0.1, [loading(0.3, 0.3, ahead=2)]).rows

    assert row.predicted_step_s.value == pytest.approx(0.3, rel=0.03)


def test_helpers_on_the_only_core_of_a_worker_are_predicted_to_gain_nothing():
    found = verdict(0.1, [loading(0.3, 0.4, trial(cores_per_worker=None))])

    assert [change.predicted_gain.value for change in found.changes] == pytest.approx([1.0] * 3, rel=0.03)
    assert found.cheapest is None


def test_the_cheapest_change_is_the_fewest_helpers_that_lift_the_limit():
    found = verdict(0.1, [loading(0.18, 0.28)])

    assert found.cheapest is not None
    change = found.changes[found.cheapest]
    assert (change.loader, change.processes, change.trial) == ("native", 2, None)
    assert change.predicted_gain.value == pytest.approx(2.8, rel=0.03)


def test_a_change_that_the_study_holds_is_checked_by_its_measurement():
    faster = loading(0.05, 0.11, trial("dali"), ahead=2)
    found = verdict(0.1, [loading(0.3, 0.4), faster])

    change = next(each for each in found.changes if each.loader == "dali")
    assert change.predicted_gain.value == pytest.approx(4.0, rel=0.05)
    assert change.measured_gain is not None
    assert change.measured_gain.value == pytest.approx(0.4 / 0.11, rel=0.05)


def test_a_step_held_up_by_something_else_than_its_loader_gets_no_advice_about_loaders():
    found = verdict(0.1, [loading(0.0005, 0.11)])

    assert found.changes == []
    assert found.cheapest is None


def test_a_configuration_that_does_not_wait_needs_no_change():
    assert verdict(0.1, [loading(0.02, 0.1, ahead=2)]).changes == []


def test_a_host_is_full_when_its_workers_take_all_its_processor_seconds():
    (row,) = verdict(0.1, [loading(0.3, 0.4)], cores=8).rows

    assert row.workers_per_host is not None
    assert row.workers_per_host.value == pytest.approx(8 * 0.1 / (0.1 + 0.3), rel=0.03)


def test_the_device_that_a_loader_limits_trains_as_many_samples_as_it_gives():
    (row,) = verdict(0.1, [loading(0.3, 0.4)]).rows

    assert row.device_samples_per_s.value == pytest.approx(BATCH / 0.3, rel=0.03)


def test_the_first_epoch_stands_apart_from_later_ones():
    chosen = trial()
    cold = MeasuredLoading(chosen, step(0.4), [0.4] * 3, alone(chosen, 0.1, first_s=0.5))
    (row,) = verdict(0.1, [cold]).rows

    assert row.alone.first_epoch_samples_per_s.value == pytest.approx(BATCH / 0.5, rel=0.03)
    assert row.alone.later_epochs_samples_per_s is not None
    assert row.alone.later_epochs_samples_per_s.value == pytest.approx(BATCH / 0.1, rel=0.03)


def test_the_rate_of_several_workers_is_their_sum():
    pair = trial(workers=2, strategy="allreduce")
    rows = [MeasuredLoading(pair, step(0.4), [0.4] * 3, alone(pair, 0.1))]
    training = MeasuredLoading(
        pair.model_copy(update={"loader": "synthetic", "dataset": None}), step(0.1), [0.1] * 3, []
    )
    ((row,),) = (each.rows for each in loader_verdicts([training, *rows], 8))

    assert row.alone.first_epoch_samples_per_s.value == pytest.approx(2 * BATCH / 0.1, rel=0.03)


def test_a_single_launch_of_a_loader_has_no_interval():
    chosen = trial()
    once = MeasuredLoading(chosen, step(0.4), [0.4], alone(chosen, 0.3)[:1])
    (row,) = verdict(0.1, [once]).rows

    assert (row.alone.samples_per_cpu_s.low, row.device_samples_per_s.low) == (None, None)


def test_two_launches_far_apart_have_finite_draws():
    drawn = _draws([98_151.0, 932_838.0], "id", 1)
    assert np.isfinite(drawn).all()
    assert drawn.max() / drawn.min() > 1e6
