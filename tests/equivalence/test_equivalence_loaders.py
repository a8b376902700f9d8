"""The check of loaders, with real runs of the reference over arrays and photographs, and planted faults."""

import json
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import trials

from steptime.catalog.manifest import load_manifests
from steptime.equivalence.check import Checker
from steptime.equivalence.loaders import LoaderInput, loader_cases, one_layer
from steptime.equivalence.oracle import Oracle
from steptime.execution.executor import Executor
from steptime.execution.progress import Silent
from steptime.runner.preparation import environment_spec, prepare_environments
from steptime.study.trial import Trial

sys.path.insert(0, str(Path(__file__).parents[1] / "frameworks"))
from image_files import SAMPLES, SIDE, digits, photos

MANIFESTS = load_manifests()
IMAGES = {"digits": (digits, (1, 28, 28)), "photographs": (partial(photos, processes=0), (3, SIDE, SIDE))}

MASKED: dict[str, Any] = {"workload": "bert_tiny", "classes": 40}
"""A workload of text whose tokens are below 39, which the last one hides."""
HIDDEN = """
from steptime.worker import batches
right = batches.hidden_places
batches.hidden_places = lambda samples, length: right(samples + 1, length)
"""

ORDER = """
from steptime.worker import batches
right = batches.worker_order
def worker_order(job, rank, workers):
    {changed}
batches.worker_order = worker_order
"""
FAULTS = {
    "a sample comes twice": "return ((e, numpy.append(own[:-1], own[0])) for e, own in right(job, rank, workers))",
    "batches are dropped": "return (each for n, each in enumerate(right(job, rank, workers)) if n % 3)",
    "two workers read one shard": "return right(job, 0, workers)",
    "epochs are alike": "return __import__('itertools').cycle([next(right(job, rank, workers)) for _ in range(1)])",
}
LABELS = """
right = open_reference_batches
def open_reference_batches(job, rank, workers, put):
    return right(job, rank, workers, lambda inputs, targets: put(inputs, numpy.roll(targets, 1)))
"""
PLANTS = {name: ORDER.format(changed=changed) for name, changed in FAULTS.items()} | {"labels are shifted": LABELS}


def loading(shape: tuple[int, ...], **changes: Any) -> Trial:
    fields = {"strategy": "allreduce", "workers": 2, "batch_per_worker": 3, "dataset": "own", "loader": "native"}
    return trials.trial(**{**fields, "input_shape": shape, **changes})


@pytest.fixture(scope="module")
def executor() -> Executor:
    prepared = prepare_environments([environment_spec(MANIFESTS["reference"])], Silent())
    return Executor(MANIFESTS, prepared.environments, (), 60.0)


def text(folder: Path) -> dict[str, Any]:
    """Write random tokens and return the loader of their sequences of twelve."""
    np.savez(folder / "text.npz", tokens=np.random.default_rng(0).integers(0, 39, 12 * SAMPLES + 1, dtype=np.uint16))
    dataset = {"form": "tokens", "path": str(folder / "text.npz"), "samples": SAMPLES}
    return {"kind": "native", "processes": 0, "dataset": dataset}


def refusal(
    executor: Executor, folder: Path, images: str, plant: str = "", asked: Mapping[str, Any] = MappingProxyType({})
) -> str | None:
    """Return why the check refuses the reference's loader with ``plant`` in its code, for a trial as ``asked``."""
    (folder / "images").mkdir()
    make, shape = {**IMAGES, "text": (text, (12,))}[images]
    loader = make(folder / "images")
    trial = loading(shape, **asked)
    (case,) = loader_cases([trial], MANIFESTS, {trial.id: LoaderInput(loader, loader)})
    own = MANIFESTS["reference"]
    shutil.copytree(own.folder, folder / "reference", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "reference" / "loader.py").open("a") as file:
        file.write(plant)
    planted = own.model_copy(update={"folder": folder / "reference"})
    faulty = Executor({**MANIFESTS, "reference": planted}, executor.environments, (), 60.0)
    truth_of = partial(Oracle(executor, folder / "truth").truth, workload=case.workload)
    return Checker(faulty, folder / "check", 19, 2).check(case.trial, case.workload, truth_of, "1", [case.probe]).reason


@pytest.mark.sampled
@pytest.mark.parametrize("images", IMAGES)
def test_a_loader_that_reads_what_it_should_passes(executor, tmp_path, images):
    assert refusal(executor, tmp_path, images) is None


@pytest.mark.sampled("fault")
@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("fault", PLANTS)
def test_a_planted_fault_of_a_loader_is_refused(executor, tmp_path, images, fault):
    reason = refusal(executor, tmp_path, images, PLANTS[fault])
    assert reason is not None
    assert reason.startswith("batches: worker 0: the "), reason


@pytest.mark.parametrize(("plant", "refused"), [("", False), (HIDDEN, True)])
def test_a_loader_that_hides_other_tokens_is_refused(executor, tmp_path, plant, refused):
    reason = refusal(executor, tmp_path, "text", plant, MASKED)
    assert (reason is not None) == refused, reason


def cases(*of: Trial, samples: int = SAMPLES, form: str = "arrays") -> list[Any]:
    found = LoaderInput({"kind": "native", "processes": 0, "dataset": {"form": form, "samples": samples}}, {})
    return list(loader_cases(of, MANIFESTS, {each.id: found for each in of if each.dataset}))


def test_trials_with_the_same_loader_are_checked_once():
    alike = [loading((1, 28, 28), workload=name) for name in ("lenet5", "mlp")]
    (case,) = cases(*alike, loading((1, 28, 28), dataset=None, loader="synthetic"))
    assert case.stands_for == tuple(each.id for each in alike)


def test_hidden_tokens_are_checked_beside_those_that_come_next():
    alike = [loading((12,), workload=name, classes=40) for name in ("gpt2_tiny", "bert_tiny")]
    assert [case.workload.loss for case in cases(*alike, form="tokens")] == [each.build().loss for each in alike]


def test_each_number_of_helpers_is_checked():
    assert len(cases(loading((1, 28, 28)), loading((1, 28, 28), loader_processes=2))) == 2


@pytest.mark.parametrize(
    ("framework", "strategy", "checked"),
    [
        ("mxnet", "ps_sync", ("ps_sync", 8)),
        ("mxnet", "ps_async", ("ps_async", 1)),
        ("cntk", "onebit", ("onebit", 1)),
        ("cntk", "block_momentum", ("single", 1)),
    ],
)
def test_workers_that_do_not_wait_for_each_other_are_checked_alone(framework, strategy, checked):
    (case,) = cases(loading((1, 28, 28), framework=framework, strategy=strategy, workers=8))
    assert (case.trial.strategy, case.trial.workers) == checked


@pytest.mark.parametrize(
    ("form", "samples", "steps"), [("arrays", 1797, 301), ("image_folder", 60, 12), ("image_folder", 6000, 12)]
)
def test_a_check_goes_through_an_epoch_and_two_steps_where_that_is_not_too_long(form, samples, steps):
    (case,) = cases(loading((3, 64, 64), batch_per_worker=3), samples=samples, form=form)
    assert sum(case.probe.rounds) == steps


def test_large_images_are_averaged_down():
    assert one_layer((3, 224, 224), 1000).parameter_count == (3 * 8 * 8 + 1) * 1000


def test_small_images_are_taken_as_they_are():
    assert one_layer((1, 28, 28), 10).parameter_count == 785 * 10


def test_small_images_that_were_decoded_are_averaged_too():
    """The filters of libraries differ by more than the last bits of a pixel at 32 x 32, and agree on its squares."""
    assert one_layer((3, 32, 32), 10, decoded=True).parameter_count == (3 * 8 * 8 + 1) * 10


def test_the_job_of_a_probe_names_the_loader(tmp_path):
    make, shape = IMAGES["digits"]
    loader = make(tmp_path)
    trial = loading(shape)
    (case,) = loader_cases([trial], MANIFESTS, {trial.id: LoaderInput(loader, loader)})
    assert json.loads(json.dumps(case.probe.job(case.workload, 0.01)["loader"])) == loader
