"""Two environments of one framework in one study: interleaved, checked, and compared as two sides."""

import json
import os
import sys

import pytest
from program import PROGRAM, steptime

from steptime.results.store import Store

STUDY = """\
workloads: {name: lenet5, batch_per_worker: 4}
frameworks: reference
launches: {min: 3, max: 3}
seconds_per_launch: 0.2
steps: {warmup: 2, min: 5, max: 20}
equivalence: {steps: 3, repeats: 1}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A study of the same interpreter under two names, measured."""
    assert PROGRAM
    folder = tmp_path_factory.mktemp("named")
    (folder / "versions.yaml").write_text(STUDY)
    both = f"old={sys.executable},new={os.path.dirname(os.path.dirname(sys.executable))}"  # noqa: PTH120 - as a shell would
    steptime("run", "versions.yaml", "--environments", both, "-o", "results", cwd=folder)
    return folder / "results"


def test_both_run_in_the_same_blocks(results):
    store = Store.open(results)
    blocks = {trial.environment_name: [each.block for each in store.launches(trial.id)] for trial in store.trials()}

    assert blocks == {"old": [0, 1, 2], "new": [0, 1, 2]}


def test_each_is_checked_against_the_reference(results):
    store = Store.open(results)

    covered = [trial for check in store.equivalence() for trial in check.trials]
    assert sorted(covered) == sorted(trial.id for trial in store.trials())


def test_they_are_compared_within_their_blocks(results):
    done = steptime("compare", str(results), "--by", "environment=old,new", "--json", cwd=results.parent)

    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["interleaved"] == 3
    assert trial["launches"] == [3, 3]
