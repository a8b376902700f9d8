"""The id of a trial, which is made once."""

from steptime.study.trial import Trial

FIELDS = {
    "framework": "reference",
    "strategy": "single",
    "workload": "mlp",
    "input_shape": (784,),
    "classes": 10,
    "dataset": None,
    "loader": "synthetic",
    "device": "cpu",
    "precision": "fp32",
    "workers": 1,
    "batch_per_worker": 8,
}
TRIAL = Trial.model_validate(FIELDS)


def test_a_copy_with_another_value_has_the_id_of_that_value():
    asked_before = TRIAL.id
    copy = TRIAL.model_copy(update={"seed": 7})
    assert copy.id == Trial.model_validate({**FIELDS, "seed": 7}).id != asked_before


def test_a_trial_whose_id_was_asked_for_is_equal_to_one_whose_id_was_not():
    asked = TRIAL.model_copy()
    assert asked.id
    assert asked == TRIAL.model_copy()
