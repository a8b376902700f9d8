"""Named environments of a study: all of them are an axis, and mistakes name what there is."""

import pytest

from steptime.errors import StudyError

STUDY = "workloads: lenet5\nframeworks: pytorch\n"
TWO = "named_environments: {old: {python: /old/python}, new: {kind: venv}}\n"


def test_all_of_them_are_measured_unless_some_are_chosen(read):
    assert read(STUDY + TWO).environment_names == ["old", "new"]
    assert read(STUDY + TWO + "environment_names: new").environment_names == ["new"]
    assert read(STUDY).environment_names == [None]


def test_the_kind_venv_is_the_environment_without_a_name(read):
    study = read(STUDY + TWO + "environments: {pytorch: {python: /usual/python}}\n")

    assert study.environment_choice("pytorch", "old").python == "/old/python"
    assert study.environment_choice("pytorch", "new").python == "/usual/python"
    assert study.environment_choice("pytorch", None).python == "/usual/python"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STUDY + TWO + "environment_names: newer", "unknown named environment 'newer'; did you mean 'new'"),
        (STUDY + "environment_names: new", "unknown named environment 'new'"),
        (STUDY.replace("pytorch", "[pytorch, mxnet]") + TWO, "a study of one framework, and this one has 2"),
        (STUDY + "named_environments: {new: {}}", "needs python"),
        (STUDY + "named_environments: {new: {kind: conda}}", "unknown kind of environment 'conda'"),
    ],
)
def test_a_mistake_names_its_place(read, text, said):
    with pytest.raises(StudyError, match=said):
        read(text)
