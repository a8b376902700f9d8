"""The launcher ``emulated`` with real namespaces; every test needs root, ``ip`` and ``tc``."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from emulating import WRITE_PLACE, launch, remains, skip_where_impossible, two_hosts

from living_processes import living_children, living_in, wait_until
from steptime.catalog.cluster import cluster_for
from steptime.errors import LaunchError
from steptime.launchers.emulation import hosts
from steptime.launchers.emulation import verification as settings
from steptime.launchers.emulation.control_groups import find_groups, new_owner
from steptime.launchers.emulation.hosts import remove_orphans
from steptime.launchers.emulation.network import NAMESPACES, attempt, batch, can_switch
from steptime.launchers.emulation.verification import kernel_delays


@pytest.fixture(autouse=True)
def _possible() -> None:
    skip_where_impossible()


def places(folder: Path) -> dict[str, dict]:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*[0-9].json")}


def test_every_process_is_on_its_host_with_its_own_name_and_network(tmp_path):
    cluster = cluster_for(workers=2, own_servers=1)
    outcome = launch(tmp_path, WRITE_PLACE, servers=1, scheduler=True, cluster=cluster)
    assert outcome.ok, outcome.reason
    found = places(tmp_path)
    assert {name: place["name"] for name, place in found.items()} == {
        "scheduler0": "h0",
        "worker0": "h0",
        "worker1": "h1",
        "server0": "h2",
    }
    for place in found.values():
        assert place["interfaces"] == ["eth0", "lo"]
        assert (place["interface"], place["peer"], place["cwd"]) == ("eth0", "10.77.0.2", str(tmp_path))


def test_addresses_are_those_of_the_hosts(tmp_path):
    launch(tmp_path, WRITE_PLACE, servers=1, cluster=cluster_for(workers=2, own_servers=1))
    place = places(tmp_path)["worker1"]
    hosts_of = [address.split(":")[0] for address in place["worker_addresses"].split(",")]
    assert hosts_of == ["10.77.0.1", "10.77.0.2"]
    assert place["server_addresses"].startswith("10.77.0.3:")
    assert place["root_address"].startswith("10.77.0.1:")


def test_workers_of_one_host_have_local_ranks_and_cores_of_their_own(tmp_path):
    cluster = cluster_for(workers=4, own_servers=0, workers_per_host=2)
    launch(tmp_path, WRITE_PLACE, workers=4, cores=(0, 1), cluster=cluster)
    found = places(tmp_path)
    assert {name: (place["name"], place["local_rank"], place["cpus"]) for name, place in found.items()} == {
        "worker0": ("h0", "0", "0;1"),
        "worker1": ("h0", "1", "0;1"),
        "worker2": ("h1", "0", "0;1"),
        "worker3": ("h1", "1", "0;1"),
    }


def test_what_was_asked_is_read_back_and_kept_with_the_launch(tmp_path):
    found = launch(tmp_path, "pass", cores=(0, 1), cluster=two_hosts()).cluster
    assert [host.roles for host in found.hosts] == [["worker-0"], ["worker-1"]]
    assert [host.cores for host in found.hosts] == [[0], [1]]
    assert [host.bandwidth_bits_per_s for host in found.hosts] == [1e8, 1e8]
    assert [host.burst_bytes for host in found.hosts] == pytest.approx([16384, 16384], rel=0.01)
    assert found.congestion_control == "reno"
    assert json.loads(json.dumps(found.to_json()))["kind"] == "emulated"


def test_a_link_is_measured_and_carries_no_more_than_was_asked_for(tmp_path):
    (path,) = launch(tmp_path, "pass", cluster=two_hosts(bandwidth_bits_per_s=5e7)).cluster.paths
    assert (path.source, path.target) == (0, 1)
    assert path.alpha_s > 0
    # The burst at a message's start is free; a busy machine can only be slower.
    assert path.bandwidth_bits_per_s <= 5e7 * (1 + 2 * 16384 / path.message_bytes)


TALK = """
    import os, socket, time
    addresses = [each.split(":") for each in os.environ["STEPTIME_WORKER_ADDRESSES"].split(",")]
    host, port = addresses[1]
    if os.environ["STEPTIME_RANK"] == "1":
        connection, _ = socket.create_server((host, int(port))).accept()
        while connection.recv(65536):
            pass
    else:
        while True:
            try:
                connection = socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        connection.sendall(bytes(300_000))
"""


def test_the_bytes_that_crossed_an_interface_are_counted(tmp_path):
    outcome = launch(tmp_path, TALK, cluster=two_hosts())
    assert outcome.ok, outcome.reason
    first, second = outcome.cluster.hosts
    for count in (first.sent_bytes, second.received_bytes):
        assert 300_000 < count < 400_000
    assert second.sent_bytes < 50_000


BUSY = """
    import os, time
    started, own = time.monotonic(), time.process_time()
    while time.process_time() - own < 0.4:
        pass
"""


def test_a_slow_host_gets_its_share_and_no_other_host_is_held_back(tmp_path):
    if find_groups() is None:
        pytest.skip("no control group of the processor can be made here")
    outcome = launch(tmp_path, BUSY, cores=(0, 1), cluster=two_hosts(cpu_shares={1: 0.5}))
    assert outcome.ok, outcome.reason
    whole, half = outcome.cluster.hosts
    assert (whole.cpu_quota_cores, whole.periods) == (None, None)
    assert half.cpu_quota_cores == 0.5
    # 0.4 s of work at 5 ms per period of 10 ms: held back most of the time, whatever else the machine does.
    assert half.periods >= 60
    assert half.throttled_periods > 10
    assert half.throttled_s > 0


def test_processes_are_in_the_group_of_their_host(tmp_path):
    groups = find_groups()
    if groups is None:
        pytest.skip("no control group of the processor can be made here")
    launch(tmp_path, WRITE_PLACE, cluster=two_hosts())
    for name, host in (("worker0", "h0"), ("worker1", "h1")):
        assert any(line.endswith(f"/{host}") for line in places(tmp_path)[name]["cgroup"].splitlines())


def test_nothing_is_left_of_a_launch(tmp_path):
    launch(tmp_path, "pass", cluster=two_hosts())
    assert not remains(os.getpid())


def test_nothing_is_left_of_a_launch_that_failed(tmp_path):
    outcome = launch(tmp_path, "raise SystemExit(7)", cluster=two_hosts())
    assert "ended with exit code 7" in outcome.reason
    assert not remains(os.getpid())


def test_a_setting_that_the_kernel_did_not_take_is_an_error_that_says_so(tmp_path, monkeypatch):
    check = settings.check_network

    def forget_first(owner, shapes, delay_s):
        batch("tc", ["qdisc del dev eth0 root"], owner.name("h1"))
        check(owner, shapes, delay_s)

    monkeypatch.setattr(settings, "check_network", forget_first)
    with pytest.raises(LaunchError, match=r"eth0 of host 1: rate is None, not 1.25e\+07"):
        launch(tmp_path, "pass", cluster=two_hosts())
    assert not remains(os.getpid())


def test_packets_are_late_by_what_was_asked_for(tmp_path):
    if not (kernel_delays() or can_switch()):
        pytest.skip("the kernel has no 'netem', and /dev/net/tun cannot be opened")
    outcome = launch(tmp_path, TALK, cluster=two_hosts(delay_s=0.005))
    assert outcome.ok, outcome.reason
    (path,) = outcome.cluster.paths
    assert path.alpha_s >= 0.95 * 0.005
    assert path.bandwidth_bits_per_s <= 1.1e8
    assert outcome.cluster.delay_by in ("netem", "switch")
    first, second = outcome.cluster.hosts
    assert 300_000 < first.sent_bytes < 500_000
    assert 300_000 < second.received_bytes < 500_000


@pytest.fixture
def _by_switch(monkeypatch) -> None:
    if not can_switch():
        pytest.skip("/dev/net/tun cannot be opened")
    monkeypatch.setattr(hosts, "kernel_delays", lambda: False)


def switches() -> list[psutil.Process]:
    """The switches of this process's launches."""
    return [each for each in living_children() if any("packet_relay.py" in word for word in each.cmdline())]


@pytest.mark.usefixtures("_by_switch")
def test_a_delay_switch_that_dies_ends_the_launch_at_once_and_is_named(tmp_path):
    killed_at = []

    def kill_when_workers_run() -> None:
        wait_until(lambda: living_in(tmp_path), 60)
        for switch in switches():
            switch.kill()
            killed_at.append(time.monotonic())

    killer = threading.Thread(target=kill_when_workers_run)
    killer.start()
    outcome = launch(tmp_path, "import time; time.sleep(600)", cluster=two_hosts(delay_s=0.001))
    killer.join()
    assert time.monotonic() - killed_at[0] < 20
    assert outcome.reason == "the delay switch between the emulated hosts ended before the launch did"
    assert not switches()
    assert not remains(os.getpid())


@pytest.mark.usefixtures("_by_switch")
def test_no_switch_survives_a_launch(tmp_path):
    assert launch(tmp_path, "pass", cluster=two_hosts(delay_s=0.001)).ok
    assert not switches()
    assert not remains(os.getpid())


def test_a_delay_that_nothing_can_make_is_refused_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "kernel_delays", lambda: False)
    monkeypatch.setattr(hosts, "can_switch", lambda: False)
    with pytest.raises(LaunchError, match=r"no 'netem', and /dev/net/tun"):
        launch(tmp_path, "pass", cluster=two_hosts(delay_s=0.002))


def test_a_slow_host_is_refused_with_the_reason_where_no_group_can_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "find_groups", lambda: None)
    with pytest.raises(LaunchError, match="no control group"):
        launch(tmp_path, "pass", cluster=two_hosts(cpu_shares={0: 0.5}))


def test_without_groups_hosts_that_are_not_slow_are_made_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "find_groups", lambda: None)
    outcome = launch(tmp_path, "pass", cluster=two_hosts())
    assert outcome.ok, outcome.reason
    assert outcome.cluster.cpu_groups is None


RUNNER = """
    import sys
    sys.path[:0] = {path!r}
    from pathlib import Path
    from emulating import launch, two_hosts
    launch(Path({folder!r}), Path({folder!r}, "sleep.py").read_text(), cluster=two_hosts(cpu_shares={{1: 0.5}}))
"""


def start_runner(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that launches two sleeping workers on emulated hosts; return when both sleep."""
    (folder / "sleep.py").write_text(textwrap.dedent(WRITE_PLACE) + "import time\ntime.sleep(600)\n")
    program = RUNNER.format(path=sys.path, folder=str(folder))
    runner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    assert wait_until(lambda: all((folder / f"worker{rank}.json").exists() for rank in range(2)), 60)
    return runner


def test_what_a_killed_runner_left_is_removed_by_the_next_start_and_only_that(tmp_path):
    mine = new_owner().name("sw")
    stranger = "steptimes-own"
    for name in (mine, stranger):
        batch("ip", [f"netns add {name}"])
    runner = start_runner(tmp_path)
    try:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        assert wait_until(lambda: not living_in(tmp_path))
        assert remains(runner.pid), "a killed process cannot have removed anything"
        assert runner.pid in {owner.pid for owner in remove_orphans(find_groups())}
        assert not remains(runner.pid)
        assert (NAMESPACES / mine).exists()
        assert (NAMESPACES / stranger).exists()
    finally:
        for name in (mine, stranger):
            attempt("ip", "netns", "delete", name)


def test_ctrl_c_removes_everything_before_the_runner_goes(tmp_path):
    runner = start_runner(tmp_path)
    runner.send_signal(signal.SIGINT)
    assert runner.wait(60) != 0
    assert not living_in(tmp_path)
    assert not remains(runner.pid)


def test_what_a_living_runner_has_is_left_alone(tmp_path):
    runner = start_runner(tmp_path)
    try:
        assert runner.pid not in {owner.pid for owner in remove_orphans(find_groups())}
        assert len(living_in(tmp_path)) == 2
    finally:
        runner.send_signal(signal.SIGINT)
        runner.wait(60)
