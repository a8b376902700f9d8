"""A checked study on a cluster of a real Ray, whose raylets are on nodes of this machine; it needs root and Ray."""

import subprocess
from collections.abc import Iterator

import pytest
from killed_host import kill_the_second, study_command, went_on_without
from ray_bed import RayBed

WORKERS = 4
pytestmark = [pytest.mark.further, pytest.mark.needs("hosts", "root")]


@pytest.fixture
def bed() -> Iterator[RayBed]:
    """Five nodes, of which a launch of four workers leaves one over."""
    pytest.importorskip("ray", reason="pip install 'steptime[ray]'")
    made = RayBed(WORKERS + 1)
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_a_study_on_ray_goes_on_with_a_spare_host_where_the_host_of_a_raylet_is_killed(bed, tmp_path):
    command = bed.command("head", study_command(tmp_path, "ray", WORKERS))
    variables = bed.variables({"RAY_ADDRESS": bed.ray_address})
    with (tmp_path / "output").open("w") as output:
        study = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    names = kill_the_second(bed, tmp_path / "results", lambda: study.poll() is not None)
    assert study.wait() == 0, (tmp_path / "output").read_text()
    assert went_on_without(bed, tmp_path / "results", names), (tmp_path / "output").read_text()
