"""Real frameworks on three emulated hosts, unchanged; the bytes on the interfaces say that they met there."""

from pathlib import Path

import pytest
from emulating import skip_where_impossible
from launching import interpreter_for, timing_job

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.cluster import cluster_for
from steptime.catalog.manifest import load_manifests
from steptime.execution.collected import collect
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import EmulatedLauncher

STEPS = 7
LENET5_BYTES = 4 * 61_706
HOSTS = 3


def train(folder: Path, name: str, strategy: str, **options: object) -> LaunchOutcome:
    """Train LeNet-5 with a worker on each host; fail the test unless all reach their end."""
    skip_where_impossible()
    manifest = load_manifests()[name]
    support, servers = manifest.strategies[strategy], int(STRATEGIES[strategy].servers)
    job = timing_job(name, strategy, "lenet5", warmup_steps=2, steps=STEPS - 3, workers=HOSTS, options=options)
    make_run_folder(folder / "run", manifest.folder, job, manifest.libraries)
    request = Request(
        folder=folder / "run",
        interpreter=interpreter_for(name),
        workers=HOSTS,
        servers=servers,
        scheduler=support.scheduler,
        cores=(0,),
        mpi=manifest.launcher_for(strategy, job["options"]) == "mpi",
        cluster=cluster_for(workers=HOSTS, own_servers=servers, bandwidth_bits_per_s=2e8),
        time_limit_s=200.0,
    )
    outcome = EmulatedLauncher().run(request)
    assert outcome.ok, f"{outcome.reason}; {collect(folder / 'run').first_error()}"
    hosts = {collect(folder / "run").worker(rank)["process"]["host"] for rank in range(HOSTS)}
    assert hosts == {f"h{number}" for number in range(HOSTS)}
    return outcome


RINGS = [
    ("reference", "allreduce", {}),
    ("pytorch", "allreduce", {}),
    ("tensorflow", "allreduce", {}),
    ("chainer", "allreduce", {}),
    ("caffe", "allreduce", {}),
    ("cntk", "allreduce", {}),
    ("jax", "allreduce", {}),
    ("horovod_pytorch", "allreduce", {"controller": "gloo"}),
    ("horovod_pytorch", "allreduce", {"controller": "mpi"}),
]


@pytest.mark.parametrize(("name", "strategy", "options"), RINGS)
def test_gradients_cross_every_link(trained_framework, tmp_path, name, strategy, options):
    for host in train(tmp_path, name, strategy, **options).cluster.hosts:
        # Each of p workers sends at least (p - 1) / p of the gradients in every step, whatever the algorithm.
        assert host.sent_bytes > (HOSTS - 1) / HOSTS * STEPS * LENET5_BYTES
        assert host.received_bytes > (HOSTS - 1) / HOSTS * STEPS * LENET5_BYTES


SERVED = [("mxnet", "ps_sync"), ("pytorch", "ps_async"), ("tensorflow", "ps_async"), ("tensorflow1", "ps_sync")]


@pytest.mark.parametrize(("name", "strategy"), SERVED)
def test_weights_and_gradients_cross_the_links_of_workers_and_server(trained_framework, tmp_path, name, strategy):
    *workers, server = train(tmp_path, name, strategy).cluster.hosts
    assert server.roles == ["server-0"]
    assert min(server.sent_bytes, server.received_bytes) > 0.9 * HOSTS * STEPS * LENET5_BYTES
    crossed = [min(host.sent_bytes, host.received_bytes) for host in workers]
    assert sum(crossed) > 0.9 * HOSTS * STEPS * LENET5_BYTES
    # TensorFlow's coordinator gives each step to a worker that is free, so that one may take more of them.
    assert min(crossed) > 0.9 * (1 if name == "tensorflow" else STEPS) * LENET5_BYTES
