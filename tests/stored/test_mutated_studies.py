"""A stored study of which lines are swapped, repeated or changed: what is wrong is named, and no number rests on it."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import MUTATIONS, mutated, numbers
from stored_studies import STUDIES, unpacked


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The results folders of all stored studies."""
    return {study: unpacked(study, tmp_path_factory.mktemp(study)) for study in STUDIES}


@pytest.mark.sampled
@pytest.mark.parametrize("mutation", MUTATIONS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_no_mutation_changes_a_number_silently(mutation, data, folders, tmp_path_factory):
    """Every line that was touched is named, and the numbers are those of the folder without these lines."""
    whole = folders[data.draw(st.sampled_from(STUDIES))]
    target = tmp_path_factory.mktemp("mutant")
    mutant, without, touched = mutated(whole, mutation, data.draw, target)
    found, named = numbers(mutant)

    assert named == touched
    assert found == numbers(without)[0]
    shutil.rmtree(target)


@pytest.mark.parametrize("study", STUDIES)
def test_nothing_of_a_stored_study_is_set_aside(study, folders):
    """Records of before there were facts, marks and schedules, and of every strategy, are used as they are."""
    assert numbers(folders[study])[1] == set()
