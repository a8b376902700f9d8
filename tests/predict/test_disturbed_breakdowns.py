"""A breakdown that something else held up, beside launches of the same training that nothing touched."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from planted_studies import COMPUTING, STAGES, a_step, add
from simulated import a_store

from steptime.fitting.breakdown_scale import to_timed_steps
from steptime.fitting.observation import observe
from steptime.predict.held_out import fit_with_holdout
from steptime.predict.predict import predict
from steptime.predict.query import Query

ALONE = COMPUTING + STAGES["step"]
PAIR = {"strategy": "allreduce", "workers": 2}
HELD_UP: Mapping[str, tuple[dict[str, float], dict[str, float]]] = {
    "the one worker": ({"0": 3.0}, {}),
    "both of two workers": ({}, {"0": 4.0, "1": 4.0}),
    "one of two workers": ({}, {"0": 6.0}),
    "every breakdown": ({"0": 2.5}, {"0": 2.5, "1": 2.5}),
}


def a_study(folder: Path, alone: Mapping[str, float], together: Mapping[str, float]):
    """Return a study of one worker and two, by how many times as long their workers compute in the breakdown."""
    store = a_store(folder)
    add(store, ALONE, {int(rank): factor for rank, factor in alone.items()})
    add(store, a_step(), {int(rank): factor for rank, factor in together.items()}, **PAIR)
    return store


@pytest.mark.parametrize("held_up", HELD_UP)
def test_a_forecast_of_what_was_measured_is_what_was_timed(tmp_path, held_up):
    profile = fit_with_holdout(a_study(tmp_path / "results", *HELD_UP[held_up]))

    alone, pair = predict(profile, [1, 2], [Query(strategy="allreduce")])
    assert alone.step_s.value == pytest.approx(ALONE, rel=0.15)
    assert pair.step_s.value == pytest.approx(a_step(), rel=0.15)


@pytest.mark.parametrize("held_up", HELD_UP)
def test_a_profile_names_the_breakdowns_of_which_it_takes_the_shares_alone(tmp_path, held_up):
    store = a_study(tmp_path / "results", *HELD_UP[held_up])
    profile = fit_with_holdout(store)

    notes = {note for group in profile.groups for note in group.notes if "its shares are used" in note}
    assert len(notes) == sum(map(bool, HELD_UP[held_up]))


def test_breakdowns_that_differ_as_launches_do_are_left_as_they_are(tmp_path):
    observations = observe(a_study(tmp_path / "results", {"0": 1.1}, {"0": 0.9, "1": 0.95}))

    assert to_timed_steps(observations) == observations
