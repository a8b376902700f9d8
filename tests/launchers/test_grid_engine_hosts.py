"""A study in a job of a real Grid Engine, whose hosts ``launcher: allocation`` takes; it needs root."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from grid_engine_bed import GridEngineBed

from steptime.results.store import Store

STUDY = """\
workloads: lenet5
frameworks: reference
workers: 2
device: cpu
launcher: allocation
loaders: synthetic
launches: {min: 1, max: 1}
seconds_per_launch: 0.3
steps: {warmup: 3, min: 5, max: 1000000}
equivalence: {enabled: false}
"""
LIMIT_S = 300.0
pytestmark = pytest.mark.needs("gridengine", "hosts", "root")


@pytest.fixture
def bed() -> Iterator[GridEngineBed]:
    """Three nodes, of which a launch of two workers leaves one over."""
    made = GridEngineBed(3)
    try:
        made.up()
        yield made
    finally:
        made.down()


def hosts_of_probe(results: Path) -> list[str]:
    """Return the hosts of a run in their order."""
    (site,) = (Store.open(results).get("sites") or {})["sites"][:1]
    assert site["source"] == "$PE_HOSTFILE"
    return [host["name"] for host in site["hosts"]]


def test_a_study_in_a_job_of_grid_engine_goes_on_with_a_spare_host_where_one_is_killed(bed, tmp_path):
    results = tmp_path / "results"
    (tmp_path / "race.yaml").write_text(STUDY)
    words = [sys.executable, "-P", "-m", "steptime", "run", str(tmp_path / "race.yaml"), "-o", str(results)]
    job = bed.submit(words, slots=3)
    deadline = time.monotonic() + LIMIT_S
    while not list(results.rglob("worker-1.jsonl")) and not bed.has_ended(job) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = hosts_of_probe(results)
    bed.kill(names[1])
    while not bed.has_ended(job) and time.monotonic() < deadline:
        time.sleep(0.1)
    store = Store.open(results)
    launches = [launch for trial in store.trials() for launch in store.launches(trial.id)]
    assert [launch.status for launch in launches].count("ok") == 1, (bed.output(job), launches)
    failed = launches[0]
    assert failed.status != "ok"
    assert names[1] in failed.reason
    assert {worker.host for launch in launches[1:] for worker in launch.workers} == {names[0], names[2]}
