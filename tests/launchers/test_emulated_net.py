"""The network benchmark between emulated hosts: what the links were made to be is what comes out."""

from pathlib import Path

import pytest
from emulating import skip_where_impossible
from launching import interpreter_for

from steptime.analysis.message_times import NetRow
from steptime.catalog.cluster import cluster_for
from steptime.catalog.manifest import load_manifests
from steptime.execution.executor import Executor
from steptime.execution.host import usable_cores
from steptime.execution.progress import Silent
from steptime.model.measured_links import net_summary
from steptime.results.net_records import NetLaunch, NetSetting
from steptime.runner.block_runner import BlockRunner
from steptime.runner.message_timing import MessageRuns, message_schedule
from steptime.runner.net_plan import back_ends_of
from steptime.runner.preparation import environment_spec, prepare_environments

WHOLE_PACKETS = 0.956
"""The share of a link's rate that is left for the bytes of a message behind the headers of its packets."""


@pytest.fixture(autouse=True)
def _possible() -> None:
    skip_where_impossible()


def measured(folder: Path, name: str, workers: int, sizes: tuple[int, ...], **links: float) -> list[NetLaunch]:
    """Run two launches of a back end's all-reduce between hosts with such links."""
    back_end = back_ends_of(load_manifests())[name]
    interpreter_for(back_end.manifest.name)
    setting = NetSetting(
        back_end=name,
        framework=back_end.manifest.name,
        strategy=back_end.support.strategy,
        options=back_end.options,
        device="cpu",
        operations=("allreduce",),
        sizes=sizes,
        workers=workers,
        launcher="emulated",
        cluster=cluster_for(workers=workers, own_servers=0, **links),
        rounds=4,
        runs=3,
    )
    ready = prepare_environments([environment_spec(back_end.manifest)], Silent()).environments
    found: list[NetLaunch] = []
    executor = Executor(load_manifests(), ready, usable_cores(), 240.0)
    runner = BlockRunner(executor, MessageRuns(folder), found.append, Silent())
    runner.run(message_schedule([setting], 2))
    assert [launch.status for launch in found] == ["ok", "ok"], [launch.reason for launch in found]
    return found


def row_of(launches: list[NetLaunch]) -> NetRow:
    (row,) = net_summary(launches).rows
    return row


@pytest.mark.alone
@pytest.mark.parametrize("rate", [2e7, 8e7])
def test_the_bandwidth_of_a_link_is_found_within_a_tenth(tmp_path, rate):
    row = row_of(measured(tmp_path, "gloo", 2, (1024, 524288, 1048576), bandwidth_bits_per_s=rate))
    assert 8 * row.fit.bandwidth_bytes_per_s.value == pytest.approx(WHOLE_PACKETS * rate, rel=0.1)


@pytest.mark.alone
def test_gloo_pays_two_latencies_for_each_step_of_its_ring(tmp_path):
    row = row_of(measured(tmp_path, "gloo", 2, (1024, 1048576), bandwidth_bits_per_s=2e8, delay_s=0.02))
    assert row.alpha_s.value == pytest.approx(0.02, rel=0.15)
    assert row.fit.latencies_per_step.value == pytest.approx(2.0, rel=0.15)


def test_the_bytes_of_every_run_crossed_the_links(tmp_path):
    launches = measured(tmp_path, "gloo", 3, (1024, 262144), bandwidth_bits_per_s=1e8)
    for launch in launches:
        # Runs that are not timed: those of the warm-up, and the first of each visit.
        timed = sum((len(visit.ends_s) - 1) * visit.bytes for visit in launch.workers[0].visits)
        others = sum(visit.bytes for visit in launch.workers[0].visits) + (1 + 3) * sum(launch.setting.sizes)
        for host in launch.cluster["hosts"]:
            expected = 2 * (3 - 1) / 3 * (timed + others)
            assert expected < host["sent_bytes"] < 1.2 * expected + 300_000
            assert expected < host["received_bytes"] < 1.2 * expected + 300_000


def test_a_star_needs_more_of_its_centre_than_a_ring_of_anybody(tmp_path):
    sizes = (1024, 1048576)
    star = row_of(measured(tmp_path / "star", "star", 3, sizes, bandwidth_bits_per_s=8e7))
    # Two whole messages pass the centre's link in each direction, where a ring would have 2 (p - 1) / p of one.
    assert 8 * star.fit.bandwidth_bytes_per_s.value < 0.75 * 8e7
