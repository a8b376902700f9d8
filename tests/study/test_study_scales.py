"""One study at several scales: the keys of the chosen scale replace those of the file, and overrides win."""

import pytest

from steptime.errors import StudyError

SCALED = (
    "workloads: lenet5\nframeworks: pytorch\nworkers: [1, 2]\nbudget: 30m\n"
    "scales:\n  paper: {workers: [4, 16], budget: null}\n"
)


def test_a_study_without_a_choice_is_the_small_one(read):
    study = read(SCALED)

    assert (study.scale, study.workers, study.budget) == ("small", [1, 2], 1800.0)


def test_a_scale_replaces_the_keys_that_it_names(read):
    assert read(SCALED, "scale=paper").workers == [4, 16]


def test_null_takes_a_key_away_at_a_scale(read):
    assert read(SCALED, "scale=paper").budget is None


def test_an_override_wins_over_the_scale(read):
    assert read(SCALED, "workers=8", "scale=paper").workers == [8]


def test_an_unknown_scale_is_answered_with_those_that_there_are(read):
    with pytest.raises(StudyError, match=r"unknown scale 'papers'; did you mean 'paper'\?"):
        read(SCALED, "scale=papers")


def test_a_mistake_within_the_chosen_scale_has_the_line_where_it_stands(read):
    with pytest.raises(StudyError, match=r":6: workers.*is too small"):
        read(SCALED.replace("[4, 16]", "0"), "scale=paper")


def test_a_key_that_no_scale_can_change_is_named_whichever_scale_is_chosen(read):
    with pytest.raises(StudyError, match=r"scales\.paper\.name: is the same at every scale"):
        read(SCALED.replace("budget: null", "name: other"))


def test_a_key_that_no_study_has_is_named_whichever_scale_is_chosen(read):
    with pytest.raises(StudyError, match=r"did you mean 'workers'\?"):
        read(SCALED.replace("{workers: [4", "{worker: [4"))
