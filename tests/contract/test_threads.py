"""Workers and servers of every framework and strategy have as many compute threads as the job says, and no others.

Three threads differ from the one that a library may think enough, and on most machines from the number of cores.
"""

import os
from typing import Any

import pytest
from launching import LaunchResult, launch_ok, timing_job

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests

THREADS = 3 if os.cpu_count() != 3 else 5
NO_MORE_THAN_CORES = min(THREADS, len(os.sched_getaffinity(0)))
"""OpenBLAS starts no more threads than there are cores, nor do frameworks whose manifest says so in ``[contract]``."""
CASES = [
    pytest.param(name, strategy, marks=pytest.mark.framework(name), id=f"{name}-{strategy}")
    for name, manifest in load_manifests().items()
    for strategy in manifest.strategies
]


def trained(folder: Any, name: str, strategy: str) -> tuple[LaunchResult, int, int]:
    """Train a few steps; return the launch and how many workers and servers it had."""
    support = load_manifests()[name].strategies[strategy]
    workers = support.min_workers
    servers = 1 if STRATEGIES[strategy].servers else 0
    job = timing_job(name, strategy, "lenet5", workers=workers, batch=2, threads=THREADS, warmup_steps=1, steps=2)
    result = launch_ok(folder, job, workers=workers, servers=servers, preloaded=True)
    return result, workers, servers


def assert_pools(result: LaunchResult, process: str, name: str) -> dict[str, Any]:
    """Hold the thread pools of a process to the job's number; return its record."""
    found = result.record("threads", process)
    for pool, size in found["thread_pools"].items():
        capped = pool.startswith("openblas") or load_manifests()[name].contract.threads == "cores"
        assert size == (NO_MORE_THAN_CORES if capped else THREADS), found["thread_pools"]
    return found


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_workers_and_servers_have_the_threads_that_the_job_says(trained_framework, name, strategy, tmp_path):
    result, workers, servers = trained(tmp_path, name, strategy)
    for rank in range(workers):
        assert_pools(result, f"worker-{rank}", name)
        said = result.record("session", f"worker-{rank}")["facts"]["threads"]
        asked = load_manifests()[name].contract.threads == "asked"
        assert said == (THREADS if asked else NO_MORE_THAN_CORES)
    for rank in range(servers):
        found = assert_pools(result, f"server-{rank}", name)
        assert found.get("threads", THREADS) == THREADS
