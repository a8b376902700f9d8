import numpy as np
import pytest
from simulated import a_failure, a_launch, a_trial

from steptime.statistics.interval import half_width_between
from steptime.statistics.stopping_rule import decide, suffices

TARGET = 0.01
MOST = 10


def final_counts(centres, error):
    """Return after how many launches each study stops, from 3 to ``MOST``."""
    counts = []
    for study in centres:
        pairs = [(centre, error) for centre in study]
        counts.append(next((n for n in range(3, MOST) if decide(pairs[:n], TARGET).stop), MOST))
    return np.array(counts)


@pytest.mark.sampled
@pytest.mark.parametrize("within", [1.0, 0.45], ids=["no launch effect", "launch effect of twice the steps'"])
@pytest.mark.parametrize("spread", [0.002, 0.006, 0.013, 0.03])
def test_intervals_cover_although_the_study_stopped_when_they_were_narrow(spread, within):
    """At least 92.5 %, with a standard error of 0.5 %; the docstring claims 93 % at worst."""
    centres = np.random.default_rng(1).normal(0.0, spread, (2000, MOST))
    counts = final_counts(centres, within * spread)
    covered = [abs(study[:n].mean()) <= half_width_between(study[:n]) for study, n in zip(centres, counts, strict=True)]
    assert 0.925 <= np.mean(covered) <= 0.97


def test_quiet_trials_stop_at_once_and_loud_ones_go_on_to_the_end():
    rng = np.random.default_rng(2)
    assert np.mean(final_counts(rng.normal(0.0, 0.0003, (300, MOST)), 0.0003)) < 3.2
    assert np.mean(final_counts(rng.normal(0.0, 0.03, (300, MOST)), 0.03)) > 9.9


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_launches_never_suffice(count):
    assert decide([(0.0, 0.0)] * count, TARGET) == type(decide([], TARGET))(stop=False, half_width=None)


def test_one_narrow_interval_is_not_enough():
    launches = [(0.0, 0.0001), (0.05, 0.0001), (0.0251, 0.0001)]
    assert not decide([launches[0], *launches[2:], *launches[2:]], TARGET).stop
    assert decide(launches[2:] * 3, TARGET).stop


def test_launches_that_agree_by_luck_do_not_beat_their_own_uncertainty():
    assert decide([(0.0, 0.0001)] * 4, TARGET).stop
    assert not decide([(0.0, 0.05)] * 4, TARGET).stop


def test_the_reached_half_width_is_told():
    centres = [0.0, 0.01, 0.02]
    found = decide([(centre, 0.0) for centre in centres], TARGET)
    assert found.half_width == pytest.approx(np.expm1(half_width_between(np.array(centres))))


def test_failed_launches_say_nothing_about_precision():
    steady = [0.1, 0.1001] * 50
    trial = a_trial()
    good = [a_launch(trial, number, steady) for number in range(3)]
    assert suffices(trial, good, TARGET)
    assert suffices(trial, [good[0], a_failure(trial, 5), *good[1:]], TARGET)
    assert not suffices(trial, [a_failure(trial, number) for number in range(6, 9)], TARGET)
