"""A killed worker of any framework ends its launch, and leaves neither loader helpers nor other processes behind.

``steptime check`` makes the same launches. ``tests/frameworks/test_pytorch_servers.py`` kills servers too.
"""

from typing import Any

import pytest
from image_files import PHOTO, photos
from launching import interpreter_for, library_workload, trial_of
from shared_libraries import tried_strategies

from steptime.catalog.manifest import load_manifests
from steptime.runner.extending.killed_worker import killed_worker_findings

CASES = [
    pytest.param(name, strategy, marks=pytest.mark.framework(name), id=f"{name}-{strategy}")
    for name in load_manifests()
    for strategy in ["single", *tried_strategies(name)]
]
"""All of a framework whose library no other one tries; they start as users start them."""


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_nothing_outlives_a_killed_worker(trained_framework: str, name: str, strategy: str, tmp_path: Any) -> None:
    manifest = load_manifests()[name]
    loader = photos(tmp_path, processes=2)
    if "native" not in manifest.loaders:
        loader = {"kind": "synthetic", "distinct_batches": 1}
    workers = 1 if strategy == "single" else 2
    trial = trial_of(name, strategy, library_workload("lenet5", **PHOTO), batch=2, workers=workers)

    found = list(killed_worker_findings(manifest, [trial], loader, interpreter_for(name), tmp_path / "run"))

    assert len(found) == 1
    assert [(each.what, each.detail) for each in found if not each.ok] == []
