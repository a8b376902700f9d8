"""The id of a trial, which is made once."""

from simulated import a_trial

TRIAL = a_trial()


def test_a_copy_with_another_value_has_the_id_of_that_value():
    asked_before = TRIAL.id
    copy = TRIAL.model_copy(update={"seed": 7})
    assert copy.id == a_trial(seed=7).id != asked_before


def test_a_trial_whose_id_was_asked_for_is_equal_to_one_whose_id_was_not():
    asked = TRIAL.model_copy()
    assert asked.id
    assert asked == TRIAL.model_copy()
