"""What trials are called while they run: two that differ in their loader have two names."""

import pytest
from trials import trial


@pytest.mark.parametrize(
    ("loader", "processes", "said"),
    [
        ("native", 0, "reference single, lenet5, 1 worker"),
        ("native", 1, "reference single, lenet5, native loader with 1 helper, 1 worker"),
        ("cached", 2, "reference single, lenet5, cached loader with 2 helpers, 1 worker"),
        ("synthetic", 0, "reference single, lenet5, synthetic loader, 1 worker"),
    ],
)
def test_a_trial_in_a_few_words_names_every_loader_but_the_usual_one(loader, processes, said):
    dataset = None if loader == "synthetic" else "digits"
    assert trial(loader=loader, loader_processes=processes, dataset=dataset).in_words == said
