"""What hosts must have at the same paths, and what is said where they are of different kinds."""

from dataclasses import replace

import pytest
from trials import trial

from steptime.catalog.cluster import cluster_for
from steptime.catalog.found_site import FoundGpu, FoundHost, NeededPaths, Site
from steptime.catalog.manifest import load_manifests
from steptime.environments.cache import cache_folder
from steptime.execution.collected import Collected
from steptime.execution.executor import Executor, LaunchResult
from steptime.execution.living_hosts import LivingHosts
from steptime.execution.progress import Silent
from steptime.launchers.request import LaunchOutcome
from steptime.runner.plan import plan_study
from steptime.runner.preparation import environment_spec, prepare_environments

OLD, NEW = "Intel Xeon E5-2680 v3", "AMD EPYC 9654"
GPU = FoundGpu("NVIDIA A100-SXM4-40GB")
HOST = FoundHost("n0", "10.0.0.1", "eth0", (0, 1), cpu=NEW, gpus=(GPU,))


def site(*hosts: FoundHost) -> Site:
    return Site(tuple(replace(host, name=f"n{index}") for index, host in enumerate(hosts)), "ssh", "the study")


def needed(folder, text: str) -> NeededPaths:
    study = folder / "race.yaml"
    study.write_text(f"workloads: lenet5\nworkers: 2\ndevice: cpu\nhosts: [n0, n1]\n{text}")
    return plan_study(str(study), [], folder / "results", None).needed_paths()


def test_a_framework_needs_the_cache_on_every_host(tmp_path):
    assert needed(tmp_path, "frameworks: pytorch\n") == NeededPaths(cache=str(cache_folder()))


def test_the_reference_without_a_dataset_needs_nothing_more(tmp_path):
    assert needed(tmp_path, "frameworks: reference\n") == NeededPaths()


def test_an_interpreter_of_the_users_own_is_needed_where_it_is(tmp_path):
    own = "environments: {pytorch: {kind: existing, python: /opt/torch/bin/python}}\n"
    assert needed(tmp_path, f"frameworks: pytorch\n{own}") == NeededPaths(interpreters=("/opt/torch/bin/python",))


def test_hosts_of_one_kind_do_not_differ():
    assert not site(HOST, HOST).differences()


@pytest.mark.parametrize(
    ("other", "title", "text"),
    [
        ({"cpu": OLD}, "processors", f"n0: {NEW}; n1: {OLD}"),
        ({"cores": (0,)}, "cores", "n0: 2; n1: 1"),
        ({"gpus": (GPU, GPU)}, "GPUs", "n0: 1 GPU (NVIDIA A100-SXM4-40GB); n1: 2 GPUs (NVIDIA A100-SXM4-40GB)"),
        ({"gpus": (FoundGpu("NVIDIA H100"),)}, "GPUs", "n0: 1 GPU (NVIDIA A100-SXM4-40GB); n1: 1 GPU (NVIDIA H100)"),
        ({"gpus": ()}, "GPUs", "n0: 1 GPU (NVIDIA A100-SXM4-40GB); n1: no GPU"),
    ],
)
def test_hosts_of_different_kinds_are_named_by_what_differs(other, title, text):
    assert site(HOST, replace(HOST, **other)).differences() == {title: text}


def flags(found: Site, workers: int) -> list[str]:
    """Return the flags of a launch on a site, one worker on each host."""
    manifests = load_manifests()
    environments = prepare_environments([environment_spec(manifests["reference"])], Silent()).environments
    living = LivingHosts(found, workers, lambda site: site, lambda site: site.names, lambda _: None)
    executor = Executor(manifests, environments, (0, 1), 30.0, hosts=living)
    cluster = cluster_for(workers=workers, own_servers=0, workers_per_host=1, kind="found")
    outcome = LaunchOutcome(ok=True, reason=None, wall_s=1.0, commands=[])
    result = LaunchResult(outcome, Collected({}), None, {}, site=found.names)
    configuration = trial(strategy="allreduce", workers=workers, cluster=cluster, hosts=workers, launcher="ssh")
    return executor.record_fields(configuration, result)["flags"]


def test_a_launch_on_hosts_of_different_kinds_has_a_flag():
    mixed = site(HOST, HOST, replace(HOST, cpu=OLD, gpus=()))
    assert flags(mixed, 3) == ["hosts_differ: processors, GPUs"]
    assert flags(mixed, 2) == []
