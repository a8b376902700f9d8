"""The settings of Horovod with MXNet take effect and change nothing that is computed."""

from pathlib import Path

import pytest
from launching import check_job, launch_ok, weight_errors

from steptime.catalog.manifest import load_manifests
from steptime.catalog.options import OptionValue

pytestmark = pytest.mark.framework("horovod_mxnet")

MANIFEST = load_manifests()["horovod_mxnet"]
SETTINGS = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}


@pytest.mark.parametrize(
    "options",
    [MANIFEST.tier_options("tuned", "allreduce", "cpu"), {"groups": 1}, {"groups": 3}],
    ids=["tuned", "one group", "three groups"],
)
def test_workers_with_other_settings_give_the_weights_of_the_oracle(
    tmp_path: Path, options: dict[str, OptionValue]
) -> None:
    """The facts are read back from MXNet and from the session."""
    oracle = check_job("reference", "single", "lenet5", steps=3, options={"shards": 2}, optimizer=SETTINGS)
    job = check_job("horovod_mxnet", "allreduce", "lenet5", steps=3, workers=2, options=options, optimizer=SETTINGS)
    result = launch_ok(tmp_path, job, workers=2)
    facts = result.record("session")["facts"]
    assert facts["groups"] == options["groups"]
    assert facts["bulk_nodes"] == options.get("bulk_nodes", 15)
    assert max(weight_errors(result.weights[1], launch_ok(tmp_path, oracle).weights[0]).values()) < 1e-4
