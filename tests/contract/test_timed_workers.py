"""Timed workers and servers of every framework and strategy: their steps, their facts, and their compute threads.

They have as many threads as the job says, and no others. Three differ from the one that a library may think enough, and
on most machines from the number of cores.
"""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from launching import LaunchResult, launch_ok, timing_job
from shared_libraries import tried_strategies

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import StrategySupport, load_manifests

STEPS = 4
THREADS = 3 if os.cpu_count() != 3 else 5
NO_MORE_THAN_CORES = min(THREADS, len(os.sched_getaffinity(0)))
"""OpenBLAS starts no more threads than there are cores, nor do frameworks whose manifest says so in ``[contract]``."""


def workers_of(support: StrategySupport) -> int:
    """Two where a strategy may have them."""
    return 1 if support.max_workers == 1 else 2


def cases(least_workers: int) -> list[Any]:
    """Every framework with every strategy of so many workers, those of several workers first."""
    return [
        pytest.param(name, strategy, marks=pytest.mark.framework(name), id=f"{name}-{strategy}")
        for name, manifest in load_manifests().items()
        for strategy, support in sorted(manifest.strategies.items(), key=lambda each: -workers_of(each[1]))
        if workers_of(support) >= least_workers
        if strategy in tried_strategies(name) or strategy == "single" or not STRATEGIES[strategy].exact
    ]


Launched = Callable[[str, str], LaunchResult]


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """A timed launch of each framework and strategy, whatever the number of tests that look at it.

    Processes of inexact strategies start as users start them; those of all others do so in ``test_killed_workers.py``.
    """

    @cache
    def launch(name: str, strategy: str) -> LaunchResult:
        workers = workers_of(load_manifests()[name].strategies[strategy])
        servers = 1 if STRATEGIES[strategy].servers else 0
        job = timing_job(
            name, strategy, "lenet5", workers=workers, batch=2, threads=THREADS, warmup_steps=1, steps=STEPS
        )
        folder, forked = tmp_path_factory.mktemp("timed"), STRATEGIES[strategy].exact
        return launch_ok(folder, job, workers=workers, servers=servers, preloaded=forked)

    return launch


def assert_pools(result: LaunchResult, process: str, name: str) -> dict[str, Any]:
    """Hold the thread pools of a process to the job's number; return its record."""
    found = result.record("threads", process)
    for pool, size in found["thread_pools"].items():
        capped = pool.startswith("openblas") or load_manifests()[name].contract.threads == "cores"
        assert size == (NO_MORE_THAN_CORES if capped else THREADS), found["thread_pools"]
    return found


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), cases(1))
def test_workers_and_servers_have_the_threads_that_the_job_says(trained_framework, name, strategy, launched):
    result = launched(trained_framework, strategy)
    for rank in range(workers_of(load_manifests()[name].strategies[strategy])):
        assert_pools(result, f"worker-{rank}", name)
        said = result.record("session", f"worker-{rank}")["facts"]["threads"]
        asked = load_manifests()[name].contract.threads == "asked"
        assert said == (THREADS if asked else NO_MORE_THAN_CORES)
    for server in [process for process in result.records if process.startswith("server")]:
        found = assert_pools(result, server, name)
        assert found.get("threads", THREADS) == THREADS
    assert any(process.startswith("server") for process in result.records) == STRATEGIES[strategy].servers


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), cases(2))
def test_two_timed_workers_agree_on_their_steps_and_leave_facts(trained_framework, name, strategy, launched):
    result = launched(trained_framework, strategy)
    for rank in range(2):
        record = result.record("steps", f"worker-{rank}")
        ends = [record["origin_s"], *record["ends_s"]]
        assert len(record["ends_s"]) == STEPS
        assert ends == sorted(ends)
        assert ends[-1] - ends[0] <= 1.05 * record["usage"]["wall_s"]
        assert result.record("session", f"worker-{rank}")["facts"]["framework_version"]
