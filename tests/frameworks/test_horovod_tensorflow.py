"""The settings of Horovod with TensorFlow that Horovod's other frameworks do not have."""

from pathlib import Path
from typing import Any

import pytest
from launching import check_job, launch_ok, weight_error

pytestmark = pytest.mark.framework("horovod_tensorflow")

SETTINGS = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}


@pytest.mark.parametrize(
    "options", [{"groups": 3}, {"average": "loss"}, {"xla": True}], ids=lambda each: next(iter(each))
)
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, options: dict[str, Any]) -> None:
    """However gradients are grouped, averaged and computed; the defaults are in the tests of all of Horovod."""
    how: dict[str, Any] = {"batch": 8, "steps": 4, "optimizer": SETTINGS}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle).weights[0]
    job = check_job("horovod_tensorflow", "allreduce", "lenet5", workers=2, options=options, **how)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert max(weight_error(weights, expected)[0] for weights in result.weights.values()) < 1e-4
    facts = result.record("session")["facts"]
    assert {name: facts[name] for name in options} == options
