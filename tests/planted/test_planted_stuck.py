"""A real worker of TensorFlow's servers that never pulls: a replay of first weights, step by step, shows it."""

import sys
from pathlib import Path

import pytest
from launching import interpreter_for

from steptime.worker.framework import NEVER_PULLED

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "equivalence"))
from configurations import Bench
from planted_timed import Timed, rules

pytestmark = pytest.mark.framework("tensorflow")


@pytest.fixture(scope="module")
def timed():
    interpreter_for("tensorflow")
    return Timed(Bench(["tensorflow"]))


@pytest.mark.parametrize(("fault", "named"), [(None, False), (NEVER_PULLED, True)], ids=["right", "never pulls"])
def test_a_worker_whose_batches_are_given_is_named_if_it_never_pulls_and_else_not(timed, fault, named):
    trial = timed.trial("tensorflow", "ps_async")
    launch = timed.launch(trial, fault)
    assert launch.reason is None

    found = rules(trial, launch, [], timed.replays(trial, launch))

    assert ("losses of worker 0 of some batch" in found.get("replay", "")) is named
    assert bool(found) is named
