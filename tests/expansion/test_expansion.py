"""A study becomes all combinations of its axes that are possible; the others are listed with their reason."""

from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.catalog.accelerators import Accelerator, Accelerators
from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import Manifest
from steptime.datasets.corpus import Corpus, CorpusPart, Largest, Reading
from steptime.equivalence.check import check_trial, equivalence_cases
from steptime.expansion.combinations import DatasetFacts
from steptime.expansion.expansion import Expansion, expand, skipped_in_words
from steptime.study.study import Study
from steptime.study.trial import Trial


def _manifest(name: str, strategies: dict[str, dict[str, Any]], **more: Any) -> Manifest:
    fields = {"title": name, "distribution": name, "python": ["3.11"], "loaders": ["synthetic", "native"], **more}
    return Manifest.model_validate(
        {**fields, "name": name, "folder": Path(), "package": name, "strategies": strategies}
    )


RING_BUILD = {
    "requirements": "requirements-cuda.txt",
    "toolkit": "12.8",
    "driver": "525.60.13",
    "oldest": "7.0",
    "newest": "9.0",
    "why_not_newer": "it has machine code alone",
}


def devices(count: int, capability: tuple[int, int] = (9, 0), driver: str = "580.65.06") -> Accelerators:
    """Return what a machine with so many CUDA devices tells."""
    return Accelerators((Accelerator("H100", "GPU-1", capability, 8e10),) * count, driver)


MANIFESTS = {
    "ring": _manifest(
        "ring",
        {"single": {}, "allreduce": {"min_workers": 2}, "fsdp": {"min_workers": 2, "max_workers": 4}},
        devices=["cpu", "cuda"],
        cuda=[RING_BUILD],
        precisions=["fp32", "bf16"],
        cuda_precisions=["fp32", "tf32", "bf16", "fp16"],
        options={
            "bucket_mb": {"help": "", "type": "float", "default": 25.0, "strategies": ["allreduce"]},
            "layout": {"help": "", "type": "str", "default": "nchw"},
        },
    ),
    "served": _manifest(
        "served",
        {
            "single": {},
            "ps_sync": {"scheduler": True},
            "ps_async": {"scheduler": True},
        },
    ),
    "passing": _manifest("passing", {"single": {}, "allreduce": {"launcher": "mpi"}}, loaders=["synthetic"]),
    "alone": _manifest("alone", {"single": {}}, environment="core"),
    "older": _manifest("older", {"single": {}}, without_transformers="it has no attention"),
    "newer": _manifest(
        "newer",
        {"single": {}, "ps_sync": {"without_training_settings": {"clip_norm": "servers have parts"}}},
        training_settings=["clip_norm", "accumulation"],
        without_training_settings={"decayed": "it has one decay"},
    ),
}
TOKEN_FILE = Corpus(
    "./own", Path("own"), Reading(), CorpusPart(("a.bin",), 1, 99), None, Largest(499, "a.bin", 8), (), ""
)
DATASETS = {
    "./own": DatasetFacts(of_tokens=True, corpus=TOKEN_FILE),
    "./photos": DatasetFacts(classes=18),
    "digits": DatasetFacts((1, 28, 28), 10),
    "photos": DatasetFacts(classes=18),
    "text": DatasetFacts(classes=256, of_tokens=True),
}


def _study(**axes: Any) -> Study:
    return Study.model_validate({"name": "test", "workloads": "lenet5", "frameworks": "ring", **axes})


def _expand(cuda_devices: int = 0, accelerators: Accelerators | None = None, **axes: Any) -> Expansion:
    return expand(_study(**axes), MANIFESTS, DATASETS, accelerators or devices(cuda_devices))


def _names(expansion: Expansion) -> list[tuple[str, str, int]]:
    return [(trial.framework, trial.strategy, trial.workers) for trial in expansion.trials]


def _reasons(expansion: Expansion) -> list[str]:
    return list(dict.fromkeys(skip.reason for skip in expansion.skipped))


_SOME = {
    "workloads": [{"name": "lenet5", "dataset": "digits"}, {"name": "resnet50", "dataset": "photos", "image": 64}],
    "frameworks": ["ring", "served", "passing", "alone"],
    "strategies": ["single", "allreduce", "ps_sync", "ps_async", "fsdp"],
    "loaders": ["native", "synthetic"],
    "workers": [1, 2, 3, 8],
    "servers": [1, 2],
    "precision": ["fp32", "bf16"],
    "device": ["cpu", "cuda"],
    "batch_per_worker": [4, 8],
}
_BUCKETS = [1, 25.0]
_AXES = st.fixed_dictionaries(
    {axis: st.lists(st.sampled_from(values), min_size=1, unique_by=repr) for axis, values in _SOME.items()}
)


@given(_AXES, st.lists(st.sampled_from(_BUCKETS), min_size=1, unique=True), st.integers(0, 4))
def test_every_combination_is_a_trial_or_is_skipped_and_none_is_both_or_twice(axes, buckets, cuda_devices):
    options = {"ring": {"bucket_mb": buckets}}
    expansion = _expand(cuda_devices, **axes, options=options)

    apart = prod(len(axes[axis]) for axis in _SOME if axis not in ("frameworks", "strategies", "servers"))
    expected = 0
    for framework in axes["frameworks"]:
        for strategy in axes["strategies"]:
            support = MANIFESTS[framework].strategies.get(strategy)
            servers = len(axes["servers"]) if support and STRATEGIES[strategy].servers else 1
            expected += apart * servers * (len(buckets) if (framework, strategy) == ("ring", "allreduce") else 1)
    assert len(expansion.trials) + len(expansion.skipped) == expected
    assert len({trial.id for trial in expansion.trials}) == len(expansion.trials)


@given(_AXES, st.integers(0, 4))
def test_the_same_study_expands_into_the_same_trials_in_the_same_order(axes, cuda_devices):
    assert _expand(cuda_devices, **axes) == _expand(cuda_devices, **axes)


@given(_AXES)
def test_trials_that_are_compared_stand_together(axes):
    groups = [trial.group for trial in _expand(**axes).trials]

    changes = sum(first != second for first, second in pairwise(groups))
    assert changes == max(0, len(set(groups)) - 1)


@given(_AXES)
def test_excluding_and_including_the_same_changes_the_order_only(axes):
    every = _expand(**axes)
    first = axes["frameworks"][:1]

    moved = _expand(**axes, exclude={"frameworks": first}, include={"frameworks": first})

    assert {trial.id for trial in moved.trials} == {trial.id for trial in every.trials}
    assert len(moved.skipped) == len(every.skipped)


def test_every_field_of_a_trial_is_settled():
    (trial,) = _expand(
        workloads={"name": "resnet50", "dataset": "photos", "image": [64, 96]},
        strategies="allreduce",
        workers=2,
        threads_per_worker=3,
        loaders={"name": "native", "processes": 2},
        options={"ring": {"bucket_mb": 1}},
        optimizer={"learning_rate": 0.5},
        seed=7,
    ).trials

    assert trial.model_dump(exclude={"id"}) == {
        "framework": "ring",
        "strategy": "allreduce",
        "workload": "resnet50",
        "input_shape": (3, 64, 96),
        "classes": 18,
        "dataset": "photos",
        "tokens": None,
        "loader": "native",
        "loader_processes": 2,
        "device": "cpu",
        "precision": "fp32",
        "workers": 2,
        "servers": 0,
        "server_placement": None,
        "hosts": 1,
        "accumulation": 1,
        "environment_name": None,
        "batch_per_worker": 32,
        "threads": 3,
        "cores_per_worker": None,
        "environment_variables": {},
        "container": (),
        "tuning": "documented",
        "options": {"bucket_mb": 1.0, "layout": "nchw"},
        "documented_options": {},
        "optimizer": {"name": "sgd", "learning_rate": 0.5, "momentum": 0.9, "weight_decay": 0.0},
        "training": None,
        "launcher": "local",
        "cluster": None,
        "seed": 7,
    }


def test_automatic_strategies_are_single_alone_and_every_synchronous_one_together():
    expansion = _expand(frameworks=["ring", "served"], workers=[1, 2])

    assert _names(expansion) == [
        ("ring", "single", 1),
        ("served", "single", 1),
        ("ring", "allreduce", 2),
        ("ring", "fsdp", 2),
        ("served", "ps_sync", 2),
    ]


def test_a_framework_without_a_synchronous_strategy_is_listed_as_such():
    expansion = _expand(frameworks="alone", workers=2)

    assert (_names(expansion), _reasons(expansion)) == ([], ["no synchronous strategy for 2 workers"])


def test_the_automatic_loader_is_native_where_there_is_a_dataset():
    trials = _expand(workloads=[{"name": "lenet5", "dataset": "digits"}, "lenet5"]).trials

    assert [(trial.loader, trial.dataset) for trial in trials] == [("native", "digits"), ("synthetic", None)]


def test_helper_processes_are_an_axis_of_loaders_that_read():
    trials = _expand(
        workloads={"name": "lenet5", "dataset": "digits"},
        loaders=["synthetic", {"name": "native", "processes": [0, 1, 2]}],
    ).trials

    assert [(trial.loader, trial.loader_processes) for trial in trials] == [
        ("synthetic", 0),
        ("native", 0),
        ("native", 1),
        ("native", 2),
    ]


def test_synthetic_data_have_no_helpers_however_many_are_asked_for():
    assert len(_expand(loaders={"name": "synthetic", "processes": [0, 1, 2]}).trials) == 1


def test_synthetic_data_keep_the_shape_and_classes_of_the_dataset_they_stand_for():
    trials = _expand(
        workloads={"name": "resnet50", "dataset": "photos", "image": 64}, loaders=["native", "synthetic"]
    ).trials

    assert [(trial.dataset, trial.input_shape, trial.classes) for trial in trials] == [
        ("photos", (3, 64, 64), 18),
        (None, (3, 64, 64), 18),
    ]


def test_synthetic_data_need_no_processes_so_that_they_are_one_trial():
    expansion = _expand(loaders=[{"name": "synthetic", "processes": 1}, {"name": "synthetic", "processes": 2}])

    assert [trial.loader_processes for trial in expansion.trials] == [0]


@pytest.mark.parametrize(
    ("framework", "devices", "settled"), [("ring", 0, "cpu"), ("ring", 1, "cuda"), ("served", 1, "cpu")]
)
def test_the_automatic_device_is_cuda_where_machine_and_framework_have_it(framework, devices, settled):
    (trial,) = _expand(devices, frameworks=framework).trials

    assert trial.device == settled


def test_the_automatic_launcher_is_what_the_strategy_needs():
    trials = _expand(frameworks=["ring", "passing"], strategies="allreduce", workers=2).trials

    assert [trial.launcher for trial in trials] == ["local", "mpi"]


def test_a_global_batch_is_shared_by_the_workers():
    trials = _expand(global_batch=64, workers=[1, 2, 4], strategies="auto", exclude={"strategies": "fsdp"}).trials

    assert [(trial.workers, trial.batch_per_worker) for trial in trials] == [(1, 64), (2, 32), (4, 16)]


def test_a_workloads_own_batch_wins_over_the_studys():
    trials = _expand(
        workloads=["lenet5", {"name": "resnet50", "batch_per_worker": [8, 16]}], batch_per_worker=64
    ).trials

    assert [(trial.workload, trial.batch_per_worker) for trial in trials] == [
        ("lenet5", 64),
        ("resnet50", 8),
        ("resnet50", 16),
    ]


@pytest.mark.parametrize(
    ("workers", "expected"), [(1, ["single", "ps_sync", "ps_async"]), (2, ["ps_sync", "ps_async"])]
)
def test_all_strategies_are_those_that_so_many_workers_can_follow(workers, expected):
    expansion = _expand(frameworks="served", strategies="all", workers=workers)

    assert [trial.strategy for trial in expansion.trials] == expected
    assert expansion.skipped == []


def test_where_servers_are_is_an_axis_of_the_strategies_that_have_them_only():
    placements = ["own", "colocated"]
    trials = _expand(frameworks="served", strategies=["single", "ps_sync"], server_placement=placements).trials

    assert [trial.server_placement for trial in trials] == [None, "own", "colocated"]
    assert len({trial.id for trial in trials}) == len(trials)


def test_servers_are_an_axis_of_the_strategies_that_have_them_only():
    trials = _expand(frameworks="served", strategies=["single", "ps_sync"], servers=[1, 2]).trials

    assert [(trial.strategy, trial.servers) for trial in trials] == [("single", 0), ("ps_sync", 1), ("ps_sync", 2)]


def test_an_option_is_an_axis_of_the_strategies_where_it_means_something():
    trials = _expand(workers=[1, 2], exclude={"strategies": "fsdp"}, options={"ring": {"bucket_mb": [1, 25]}}).trials

    assert [(trial.strategy, trial.options) for trial in trials] == [
        ("single", {"layout": "nchw"}),
        ("allreduce", {"bucket_mb": 1.0, "layout": "nchw"}),
        ("allreduce", {"bucket_mb": 25.0, "layout": "nchw"}),
    ]


def test_an_option_given_as_its_default_is_the_same_trial_as_none_given():
    (stated,) = _expand(strategies="allreduce", workers=2, options={"ring": {"bucket_mb": 25}}).trials
    (unstated,) = _expand(strategies="allreduce", workers=2).trials

    assert stated.id == unstated.id


def test_repeated_values_give_a_trial_once():
    assert len(_expand(frameworks=["ring", "ring"], workers=[1, 1]).trials) == 1


def test_an_exclusion_drops_what_matches_on_every_axis_it_names():
    expansion = _expand(
        frameworks=["served"],
        strategies=["single", "ps_sync"],
        workers=[1, 2],
        exclude=[{"strategies": ["ps_sync", "ps_async"], "workers": 1}, {"strategies": "single", "workers": 2}],
    )

    assert _names(expansion) == [("served", "single", 1), ("served", "ps_sync", 2)]
    assert expansion.skipped == []


@pytest.mark.parametrize(
    "exclusion",
    [
        {"workloads": "lenet5"},
        {"loaders": "native"},
        {"servers": 2},
        {"server_placement": "colocated"},
        {"precision": "fp32"},
        {"device": "cpu"},
        {"batch_per_worker": 16},
        {"global_batch": 32},
        {"options": {"served": {"mode": "b"}}},
    ],
)
def test_every_axis_can_be_excluded_by(exclusion):
    options = {"mode": {"help": "", "type": "str", "default": "a"}}
    manifest = _manifest("served", {"ps_sync": {}}, options=options)
    axes = {
        "workloads": {"name": "lenet5", "dataset": "digits"},
        "frameworks": "served",
        "strategies": "ps_sync",
        "loaders": "native",
        "workers": 2,
        "servers": 2,
        "server_placement": "colocated",
        "global_batch": 32,
        "options": {"served": {"mode": "b"}},
    }

    def count(**more: Any) -> int:
        return len(expand(_study(**axes, **more), {"served": manifest}, DATASETS, devices(0)).trials)

    assert (count(), count(exclude=exclusion)) == (1, 0)


def test_an_exclusion_that_matches_nothing_is_named_by_its_place():
    exclude = [{"workers": 1}, {"workers": [3, 4]}, {"workers": 1, "strategies": "single"}]

    assert _expand(workers=[1, 2], strategies=["single", "allreduce"], exclude=exclude).without_effect == [
        'exclude[1] matches no combination: {"workers": [3, 4]}'
    ]


def test_an_exclusion_by_the_options_of_one_framework_leaves_the_others():
    expansion = _expand(frameworks=["ring", "alone"], exclude={"options": {"ring": {"layout": "nchw"}}})

    assert _names(expansion) == [("alone", "single", 1)]


def test_an_inclusion_replaces_the_axes_it_names_and_keeps_the_others():
    expansion = _expand(
        workloads={"name": "resnet50", "image": 64, "batch_per_worker": 8},
        precision=["fp32", "bf16"],
        include={"workers": 2, "strategies": "allreduce", "precision": "bf16"},
    )

    assert [(t.strategy, t.workers, t.precision, t.input_shape, t.batch_per_worker) for t in expansion.trials] == [
        ("single", 1, "fp32", (3, 64, 64), 8),
        ("single", 1, "bf16", (3, 64, 64), 8),
        ("allreduce", 2, "bf16", (3, 64, 64), 8),
    ]


def test_a_workload_included_by_its_name_keeps_its_settings_but_not_its_batch_where_one_is_given():
    listed = {"name": "resnet50", "image": 64, "batch_per_worker": 8}

    trials = _expand(
        workloads=[listed, "lenet5"], include={"workloads": "resnet50", "batch_per_worker": 4, "frameworks": "alone"}
    ).trials

    assert [(t.framework, t.workload, t.input_shape, t.batch_per_worker) for t in trials][-1] == (
        "alone",
        "resnet50",
        (3, 64, 64),
        4,
    )


def test_what_is_included_cannot_be_excluded():
    expansion = _expand(workers=[1, 2], strategies=["single", "allreduce"], exclude={"workers": [1, 2]},
                        include={"workers": 1, "strategies": "single"})  # fmt: skip

    assert _names(expansion) == [("ring", "single", 1)]


def test_a_sequence_is_as_long_as_the_study_says():
    (trial,) = _expand(workloads={"name": "gpt2_tiny", "sequence": 12}, strategies="single").trials

    assert (trial.input_shape, trial.classes) == ((12,), 256)


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"strategies": "ps_sync"}, "no strategy 'ps_sync' (it has single, allreduce, fsdp)"),
        ({"strategies": "single", "workers": 2}, "'single' is one worker, not 2"),
        ({"strategies": "allreduce"}, "'allreduce' needs at least 2 workers, not 1"),
        ({"strategies": "fsdp", "workers": 8}, "'fsdp' takes at most 4 workers, not 8"),
        ({"frameworks": "served", "precision": "bf16"}, "no precision 'bf16' (it has fp32)"),
        ({"frameworks": "served", "device": "cuda"}, "no device 'cuda' (it has cpu)"),
        ({"device": "cuda"}, "no CUDA device on this machine"),
        (
            {"frameworks": "passing", "workloads": {"name": "lenet5", "dataset": "digits"}},
            "no loader 'native' (it has synthetic)",
        ),
        (
            {"workloads": {"name": "resnet50", "sequence": 8}},
            "resnet50: resnet50 takes no tokens; leave the sequence out",
        ),
        (
            {"workloads": {"name": "gpt2_tiny", "dataset": "digits"}},
            "gpt2_tiny takes tokens, and digits has images",
        ),
        (
            {"workloads": {"name": "lenet5", "dataset": "text"}},
            "lenet5 takes images, and text has tokens",
        ),
        (
            {"workloads": {"name": "gpt2_tiny", "dataset": "./own", "classes": 400}},
            "./own has the token 499 (a.bin, at place 8), outside of the vocabulary of 400 of gpt2_tiny; raise classes",
        ),
        (
            {"workloads": {"name": "bert_tiny", "dataset": "./own", "classes": 500}},
            "./own has the token 499 (a.bin, at place 8), outside of the vocabulary of 500 of bert_tiny; raise classes",
        ),
        (
            {"workloads": {"name": "bert_tiny", "dataset": "text", "classes": 256}},
            "text has 256 tokens in its vocabulary and one that hides them, more than the 256 asked of bert_tiny",
        ),
        (
            {"workloads": {"name": "gpt2_tiny", "dataset": "./own", "classes": 500, "sequence": 99}},
            "./own has 99 tokens, fewer than a sequence of 99 of gpt2_tiny and the token after it",
        ),
        (
            {"workloads": {"name": "lenet5", "dataset": "./photos", "tokens": "bpe"}},
            "lenet5 takes no tokens, so a vocabulary has no meaning",
        ),
        (
            {"workloads": {"name": "gpt2_tiny", "dataset": "text", "classes": 200}},
            "text has 256 tokens in its vocabulary, more than the 200 asked of gpt2_tiny",
        ),
        ({"frameworks": "older", "workloads": "vit_tiny"}, "cannot train vit_tiny: it has no attention"),
        ({"loaders": "native"}, "lenet5 has no dataset for the loader 'native' to read"),
        (
            {"frameworks": "passing", "strategies": "allreduce", "workers": 2, "launcher": "local"},
            "'allreduce' is started by the launcher 'mpi', not 'local'",
        ),
        (
            {"frameworks": "served", "strategies": "ps_sync", "launcher": "mpi"},
            "'ps_sync' needs servers or a scheduler, which the launcher 'mpi' does not start",
        ),
        ({"launcher": "inline"}, "the launcher 'inline' runs one worker in steptime's own interpreter"),
        (
            {"strategies": "allreduce", "workers": 3, "global_batch": 64},
            "a global batch of 64 cannot be shared equally by 3 workers",
        ),
        (
            {"workloads": {"name": "resnet50", "dataset": "digits"}},
            "resnet50 takes 3 channels, and digits has 1 channel",
        ),
        (
            {"workloads": {"name": "lenet5", "dataset": "digits", "image": 32}},
            "digits is stored as 28x28 and is not resized to 32x32",
        ),
        (
            {"workloads": {"name": "resnet50", "dataset": "photos", "classes": 10}},
            "photos has 18 classes, more than the 10 asked of resnet50",
        ),
    ],
)
def test_what_is_impossible_is_skipped_with_its_reason(axes, reason):
    expansion = _expand(**axes)

    assert (expansion.trials, _reasons(expansion)) == ([], [reason])


def test_more_workers_than_cuda_devices_are_skipped():
    expansion = _expand(1, device="cuda", strategies="auto", workers=[1, 2])

    assert _names(expansion) == [("ring", "single", 1)]
    assert _reasons(expansion) == ["2 workers need as many CUDA devices; this machine has 1"]


def test_an_image_that_is_too_small_for_the_workload_is_skipped_with_the_layer_that_says_so():
    (skip,) = _expand(workloads={"name": "lenet5", "image": 4}).skipped

    assert skip.reason.startswith("lenet5: ")
    assert "conv2" in skip.reason


def test_a_skip_says_which_combination_it_is():
    (skip,) = _expand(strategies="ps_sync", workers=2, global_batch=64).skipped

    assert skip.combination == {
        "framework": "ring",
        "strategy": "ps_sync",
        "workload": "lenet5",
        "dataset": None,
        "loader": "synthetic",
        "device": "cpu",
        "precision": "fp32",
        "workers": 2,
        "servers": 0,
        "server_placement": None,
        "global_batch": 64,
        "tuning": "documented",
        "options": {},
    }


def test_skips_are_told_in_one_line_per_reason_with_a_count_for_each_framework():
    expansion = _expand(frameworks=["ring", "alone"], strategies=["single", "ps_sync"], workers=[2, 3])

    assert skipped_in_words(expansion.skipped) == [
        "ring (1), alone (1): 'single' is one worker, not 2",
        "ring (2): no strategy 'ps_sync' (it has single, allreduce, fsdp)",
        "alone (2): no strategy 'ps_sync' (it has single)",
        "ring (1), alone (1): 'single' is one worker, not 3",
    ]


def test_auto_is_one_device_for_all_frameworks_and_those_without_it_are_left_out_with_the_reason():
    expansion = _expand(1, frameworks=["served", "ring", "alone"])

    assert {(trial.framework, trial.device) for trial in expansion.trials} == {("ring", "cuda")}
    assert _reasons(expansion) == ["no device 'cuda' (it has cpu)"]


def test_auto_is_the_processor_for_all_where_no_framework_has_a_build_for_the_devices():
    (trial,) = _expand(accelerators=devices(1, (10, 0))).trials

    assert trial.device == "cpu"


@pytest.mark.parametrize("axes", [{"workers": [2, 4]}, {"launcher": "emulated", "cluster": {"hosts": 1}}])
def test_auto_is_the_processor_where_no_trial_of_the_study_could_run_on_the_devices(axes):
    assert {trial.device for trial in _expand(1, **axes).trials} == {"cpu"}


def test_auto_looks_at_the_frameworks_that_a_study_includes():
    expansion = _expand(1, frameworks="alone", include=[{"frameworks": "ring"}])

    assert {(trial.framework, trial.device) for trial in expansion.trials} == {("ring", "cuda")}


@pytest.mark.parametrize(
    ("accelerators", "reason"),
    [
        (devices(1, driver="470.57.02"), "needs the driver 525.60.13 or newer, and this machine has 470.57.02"),
        (devices(1, (6, 1)), "has code from compute capability 7.0 on, and a device here has 6.1"),
        (devices(1, (12, 0)), "runs up to compute capability 9.0, and a device here has 12.0: it has machine code"),
    ],
)
def test_a_build_that_cannot_run_on_the_driver_or_the_devices_is_refused_with_the_reason(accelerators, reason):
    expansion = _expand(accelerators=accelerators, device="cuda")

    assert not expansion.trials
    assert reason in expansion.skipped[0].reason
    assert "kind: existing" in expansion.skipped[0].reason


def test_an_interpreter_of_the_users_own_is_taken_at_its_word():
    own = {"ring": {"kind": "existing", "python": "/usr/bin/python3"}}

    (trial,) = _expand(accelerators=devices(1, (12, 0)), environments=own).trials

    assert trial.device == "cuda"


def test_emulated_hosts_have_no_cuda_devices():
    expansion = _expand(2, device="cuda", launcher="emulated", cluster={"hosts": 2}, workers=2)

    assert not expansion.trials
    assert "limits sockets" in expansion.skipped[0].reason


@pytest.mark.parametrize(
    ("device", "precision", "capability", "reason"),
    [
        ("cpu", "tf32", (9, 0), "TF32 is a format of NVIDIA's tensor cores"),
        (
            "cpu",
            "fp16",
            (9, 0),
            "no precision 'fp16' (it has fp32, bf16): CUDA devices have fast products of half precision",
        ),
        ("cuda", "tf32", (7, 5), "from compute capability 8.0 on"),
        ("cuda", "bf16", (7, 5), "from compute capability 8.0 on"),
    ],
)
def test_a_precision_that_the_device_does_not_have_is_refused_with_the_reason(device, precision, capability, reason):
    expansion = _expand(accelerators=devices(1, capability), device=device, precision=precision)

    assert not expansion.trials
    assert reason in expansion.skipped[0].reason


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_a_device_that_has_a_precision_trains_in_it(precision):
    (trial,) = _expand(1, device="cuda", precision=precision).trials

    assert trial.precision == precision


def _emulated(**axes: Any) -> Expansion:
    cluster = {"hosts": 2, "workers_per_host": 2, "bandwidth": "100Mbit/s", "cpu_share": {"1": "50%"}}
    return _expand(launcher="emulated", cluster=cluster, **axes)


def test_a_trial_has_the_hosts_that_its_workers_fill():
    (few, many) = _emulated(strategies="allreduce", workers=[2, 3]).trials

    assert few.cluster is not None
    assert many.cluster is not None
    assert (few.launcher, few.hosts, few.cluster.worker_hosts) == ("emulated", 1, 1)
    assert (many.hosts, [host.cpu_share for host in many.cluster.hosts]) == (2, [1.0, 0.5])
    assert {host.bandwidth_bits_per_s for host in many.cluster.hosts} == {1e8}


def test_servers_of_their_own_have_hosts_of_their_own():
    own, beside = _emulated(
        frameworks="served", strategies="ps_sync", workers=4, servers=2, server_placement=["own", "colocated"]
    ).trials

    assert (own.hosts, beside.hosts) == (4, 2)


def test_a_host_that_nobody_runs_on_does_not_change_a_trial():
    cluster = {"hosts": 2, "bandwidth": "100Mbit/s"}
    (small,) = _expand(launcher="emulated", cluster=cluster, workers=2, strategies="allreduce").trials
    (large,) = _expand(launcher="emulated", cluster={**cluster, "hosts": 9}, workers=2, strategies="allreduce").trials

    assert small.id == large.id


def test_workers_that_find_no_host_are_left_out_with_the_reason():
    (skipped,) = _emulated(strategies="allreduce", workers=5).skipped

    assert skipped.reason == "the cluster has room for 4 workers on its hosts, not for 5"


def test_the_gate_checks_on_this_host_with_the_launcher_that_the_framework_needs():
    trials = _emulated(frameworks=["ring", "passing"], strategies="allreduce", workers=3).trials
    here = _expand(frameworks=["ring", "passing"], strategies="allreduce", workers=3).trials

    assert [check_trial(each, MANIFESTS[each.framework]).launcher for each in trials] == ["local", "mpi"]
    assert [case.trial for case in equivalence_cases(trials, MANIFESTS)] == [
        case.trial for case in equivalence_cases(here, MANIFESTS)
    ]


def test_each_value_of_an_environment_variable_is_a_trial_and_null_leaves_it_unset():
    trials = _expand(environment_variables={"KMP_BLOCKTIME": [None, "1"]}).trials

    assert [trial.environment_variables for trial in trials] == [{}, {"KMP_BLOCKTIME": "1"}]
    assert len({trial.id for trial in trials}) == len(trials)


def test_a_trial_without_variables_and_with_a_core_per_thread_keeps_its_id():
    (plain,) = _expand().trials
    (same,) = _expand(cores_per_worker=1).trials
    (unset,) = _expand(environment_variables={"KMP_BLOCKTIME": None}).trials
    (other,) = _expand(cores_per_worker=2).trials

    assert plain.id == same.id == unset.id == "ring-single-lenet5-w1-b32-2f971656"
    assert (other.id != plain.id, other.cores_per_worker, plain.cores_per_worker) == (True, 2, None)


def test_trials_that_differ_in_a_variable_are_compared():
    one, other = _expand(environment_variables={"KMP_BLOCKTIME": ["0", "1"]}).trials

    assert one.group == other.group


def test_a_variable_of_one_framework_is_not_set_for_the_others():
    trials = _expand(frameworks=["ring", "served"], environment_variables={"served": {"OMP_SCHEDULE": "auto"}}).trials

    assert {trial.framework: trial.environment_variables for trial in trials} == {
        "ring": {},
        "served": {"OMP_SCHEDULE": "auto"},
    }


def test_an_exclusion_by_a_variable_drops_the_trials_that_have_its_value():
    variables = {"KMP_BLOCKTIME": [None, "0", "1"]}
    excluded = [{"environment_variables": {"KMP_BLOCKTIME": [None, "1"]}}]

    assert [
        trial.environment_variables for trial in _expand(environment_variables=variables, exclude=excluded).trials
    ] == [{"KMP_BLOCKTIME": "0"}]


def test_an_exclusion_by_a_variable_of_one_framework_leaves_the_others():
    excluded = [{"environment_variables": {"served": {"OMP_SCHEDULE": None}}}]

    assert {trial.framework for trial in _expand(frameworks=["ring", "served"], exclude=excluded).trials} == {"ring"}


def test_an_inclusion_may_set_a_variable():
    included = [{"environment_variables": {"OMP_SCHEDULE": "auto"}}]

    assert [trial.environment_variables for trial in _expand(include=included).trials] == [{}, {"OMP_SCHEDULE": "auto"}]


def test_the_launcher_in_this_process_cannot_set_variables():
    expansion = _expand(launcher="inline", environment_variables={"OMP_SCHEDULE": "auto"})

    assert not expansion.trials


def test_another_container_is_another_trial_and_no_container_the_same_as_ever():
    def expanded(**choice: object) -> Trial:
        environments = {"ring": {"python": "/usr/bin/python3", **choice}}
        (trial,) = _expand(environments=environments).trials
        return trial

    first, second = expanded(container="apptainer exec a.sif"), expanded(container="apptainer exec b.sif")
    assert (first.container, second.container) == (("apptainer", "exec", "a.sif"), ("apptainer", "exec", "b.sif"))
    (without,) = _expand().trials
    assert expanded().id == without.id
    assert len({first.id, second.id, without.id}) == 3


def test_the_launcher_in_this_process_runs_no_container():
    expansion = _expand(launcher="inline", environments={"ring": {"container": "apptainer exec a.sif"}})

    assert not expansion.trials
    assert "inline" in expansion.skipped[0].reason


def test_an_inclusion_trains_where_the_study_times_steps():
    learner = _manifest("ring", {"single": {}}, learning=True)
    study = _study(
        loaders="synthetic",
        include={
            "workloads": {"name": "lenet5", "dataset": "digits"},
            "loaders": "native",
            "train": {"epochs": 3, "schedules": ["constant", "cosine"]},
        },
    )

    trials = expand(study, {"ring": learner}, DATASETS, devices(0)).trials

    assert [trial.training.rate_schedule.name if trial.training else None for trial in trials] == [
        None,
        "constant",
        "cosine",
    ]


_CLIPPED = {"clip_norm": 1.0}
_OF_MATRICES = {"weight_decay": 0.1, "decayed": "matrices"}


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"optimizer": _OF_MATRICES}, "no setting 'decayed' of training: it has one decay"),
        ({"optimizer": _CLIPPED, "frameworks": "ring"}, "no setting 'clip_norm' of training"),
        (
            {"optimizer": _CLIPPED, "strategies": "ps_sync"},
            "'ps_sync' has no setting 'clip_norm' of training: servers have parts",
        ),
        ({"accumulation": 3}, "a batch per worker of 4 has no 3 equal micro-batches"),
        ({"accumulation": 4, "frameworks": "ring"}, "no setting 'accumulation' of training"),
        ({"accumulation": 2, "workloads": "resnet50"}, "accumulation 2 changes what resnet50 learns"),
    ],
)
def test_a_setting_of_training_that_cannot_be_obeyed_is_skipped_with_the_reason(axes, reason):
    found = _expand(**{"frameworks": "newer", "batch_per_worker": 4, **axes})
    assert not found.trials
    assert [each[: len(reason)] for each in _reasons(found)] == [reason]


def test_a_step_of_micro_batches_is_ranked_with_one_of_a_whole_batch():
    whole, parts = _expand(frameworks="newer", batch_per_worker=4, accumulation=[1, 4]).trials
    assert (whole.accumulation, parts.accumulation) == (1, 4)
    assert whole.group == parts.group
    assert whole.id != parts.id


def test_a_later_setting_of_an_optimizer_changes_an_id_only_where_it_is_set():
    plain, clipped = _expand(frameworks="newer", optimizer=["sgd", {"name": "sgd", **_CLIPPED}]).trials
    assert "clip_norm" not in plain.optimizer.all_settings()
    assert plain.id != clipped.id
