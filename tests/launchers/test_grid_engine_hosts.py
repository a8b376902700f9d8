"""A checked study in a job of a real Grid Engine, whose hosts ``launcher: allocation`` takes; it needs root."""

from collections.abc import Iterator

import pytest
from grid_engine_bed import GridEngineBed
from killed_host import hosts_of_probe, kill_the_second, study_command, went_on_without

WORKERS = 4
pytestmark = pytest.mark.needs("gridengine", "hosts", "root")


@pytest.fixture
def bed() -> Iterator[GridEngineBed]:
    """Five nodes, of which a launch of four workers leaves one over."""
    made = GridEngineBed(WORKERS + 1)
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_a_study_in_a_job_of_grid_engine_goes_on_with_a_spare_host_where_one_is_killed(bed, tmp_path):
    results = tmp_path / "results"
    job = bed.submit(study_command(tmp_path, "allocation", WORKERS), slots=WORKERS + 1)
    names = kill_the_second(bed, results, lambda: bed.has_ended(job))
    assert went_on_without(bed, results, names), bed.output(job)
    assert hosts_of_probe(results)[0] == "$PE_HOSTFILE"
