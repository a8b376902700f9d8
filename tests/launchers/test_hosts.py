"""The launchers ssh, slurm and mpi on a bed of nodes with a real sshd and a real Slurm; every test needs root."""

import json
import os
import shlex
import shutil
import site
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_bed import ClusterBed, running_bed
from containers import missing_bubblewrap
from emulating import AS_SOMEBODY, SOMEBODY
from system_packages import install_command

import steptime
from steptime.execution.page_cache import cached_share
from steptime.results.store import Store
from steptime.runner.preparation import ready_interpreter

LAUNCH = str(Path(__file__).with_name("host_launch.py"))
PYTHON = sys.executable
PRINT_ALLOCATION = """
import os
from steptime.launchers.hosts.allocation import find_allocation
found = find_allocation(os.environ)
print(*found.slots, found.reach)
"""
WRITE_PLACE = """
    import json, os, socket, sys
    rank = os.environ.get("STEPTIME_RANK") or os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    with open(os.environ["STEPTIME_ROLE"] + "-" + rank + ".json", "w") as file:
        own = {key[9:].lower(): value for key, value in os.environ.items() if key.startswith("STEPTIME_")}
        foreign = [key for key in os.environ if key.startswith(("SLURM", "SSH"))]
        here = {"host": socket.gethostname(), "cwd": os.getcwd(), "prefix": sys.prefix}
        json.dump({**own, **here, "foreign": foreign}, file)
"""
SLEEP = """
    import subprocess, sys, time
    open("started-" + __import__("os").environ["STEPTIME_RANK"], "w").close()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    time.sleep(600)
"""
FAIL = """
    import os, sys, time
    if os.environ["STEPTIME_RANK"] == "1":
        sys.exit(3)
    time.sleep(600)
"""
SEND_TO_NEIGHBOUR = """
    import ctypes, json, os
    def sent():
        lines = [line.split() for line in open("/proc/self/net/dev").read().splitlines()[2:]]
        return sum(int(fields[9]) for fields in lines)
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        rank, mpi = int(os.environ["OMPI_COMM_WORLD_RANK"]), ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
        world, byte = (ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + name)) for name in ("comm_world", "byte"))
    else:
        rank, mpi = int(os.environ["PMI_RANK"]), ctypes.CDLL("libmpi.so.12", ctypes.RTLD_GLOBAL)
        world, byte = ctypes.c_int(0x44000000), ctypes.c_int(0x4C00010D)
    mpi.MPI_Init(None, None)
    data, size = ctypes.create_string_buffer(1 << 20), ctypes.c_int(1 << 20)
    def exchange(one, other, times):
        if rank in (one, other):
            call = (mpi.MPI_Send, ()) if rank == one else (mpi.MPI_Recv, (ctypes.create_string_buffer(64),))
            for _ in range(times):
                call[0](data, size, byte, other if rank == one else one, 7, world, *call[1])
        mpi.MPI_Barrier(world)
    exchange(0, 1, 1)
    exchange(0, 2, 1)
    before = sent()
    exchange(0, 1, 64)
    near = sent() - before
    chosen = {name: os.environ.get(name) for name in ("UCX_TLS", "OMPI_MCA_btl", "OMPI_MCA_pml")}
    with open("worker-%d.json" % rank, "w") as file:
        json.dump({"host": os.uname().nodename, "near_bytes": near, **chosen}, file)
    mpi.MPI_Finalize()
"""
SMALL_STUDY = """
workloads: [{name: lenet5, batch_per_worker: 4}]
frameworks: reference
workers: 2
device: cpu
loaders: synthetic
launches: {min: 1, max: 1}
seconds_per_launch: 0.1
steps: {warmup: 3, min: 5, max: 10}
equivalence: {enabled: false}
"""
pytestmark = pytest.mark.needs("hosts", "root")


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    """Three nodes, and a fourth that tests may kill."""
    with running_bed(4) as made:
        yield made


def filled_folder(folder: Path, program: str) -> Path:
    (folder / "start.py").write_text(textwrap.dedent(program))
    return folder


def launch(
    bed: ClusterBed, folder: Path, launcher: str = "ssh", hosts: str = "n0,n1", **given: object
) -> dict[str, Any]:
    """Run a launch on the bed, by Slurm within an allocation of its own; return its outcome."""
    reach = "slurm" if launcher == "slurm" else "ssh"
    command = [PYTHON, LAUNCH, str(folder), launcher, reach, hosts, *(f"{key}={value}" for key, value in given.items())]
    allocation = ["salloc", "-Q", f"--nodelist={hosts}", "--exclusive"] if reach == "slurm" else []
    done = bed.run(*allocation, *command)
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def places(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*-[0-9].json")}


def await_quiet(bed: ClusterBed, *nodes: str, limit_s: float = 40.0) -> list[str]:
    """Return what still runs on nodes, once nothing does or the time is up; the machine may be very busy."""
    deadline = time.monotonic() + limit_s
    while True:
        left = [
            f"{node}: {line}"
            for node in nodes
            for line in bed.processes(node)
            if "start.py" in line or "sleep(600)" in line
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def started(folder: Path, count: int = 2, limit_s: float = 60.0) -> bool:
    deadline = time.monotonic() + limit_s
    while len(list(folder.glob("started-*"))) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return len(list(folder.glob("started-*"))) == count


def test_all_groups_of_a_real_heterogeneous_job_are_its_hosts(bed):
    found = bed.run("salloc", "-Q", "-N1", ":", "-N2", PYTHON, "-c", PRINT_ALLOCATION)
    assert found.stdout.split() == ["n0", "n1", "n2", "ssh"], found.stderr


@pytest.mark.parametrize("launcher", ["ssh", "slurm"])
def test_workers_and_servers_run_on_their_hosts_with_addresses_of_the_interface(bed, tmp_path, launcher):
    outcome = launch(bed, filled_folder(tmp_path, WRITE_PLACE), launcher, "n0,n1,n2", servers=1)
    assert outcome["ok"], outcome
    found = places(tmp_path)
    assert {name: place["host"] for name, place in found.items()} == {
        "worker-0": "n0",
        "worker-1": "n1",
        "server-0": "n2",
    }
    for place in found.values():
        hosts = [address.split(":")[0] for address in place["worker_addresses"].split(",")]
        assert hosts == ["10.88.0.1", "10.88.0.2"]
        assert place["server_addresses"].startswith("10.88.0.3:")
        assert place["root_address"].startswith("10.88.0.1:")
        assert (place["interface"], place["cwd"], place["foreign"]) == ("eth0", str(tmp_path), [])
    assert [load["host"] for load in outcome["host_loads"]] == ["n0", "n1", "n2"]


@pytest.mark.parametrize(("launcher", "known"), [("ssh", None), ("slurm", "/of/the/controller")])
def test_the_variables_of_the_hosts_are_kept_and_not_those_of_the_controller(
    bed, tmp_path, monkeypatch, launcher, known
):
    """A login by ssh has what its host gives it; srun takes the controller's variables along."""
    monkeypatch.setenv("CUDA_HOME", "/of/the/controller")
    outcome = launch(bed, filled_folder(tmp_path, WRITE_PLACE), launcher)
    assert outcome["passed"].get("CUDA_HOME") == known


def test_a_launch_on_one_host_uses_loopback_there(bed, tmp_path):
    assert launch(bed, filled_folder(tmp_path, WRITE_PLACE), hosts="n1,n2", workers=1)["ok"]
    place = places(tmp_path)["worker-0"]
    assert (place["host"], place["interface"]) == ("n1", "lo")
    assert place["root_address"].startswith("127.0.0.1:")


@pytest.mark.parametrize("launcher", ["ssh", "slurm"])
def test_a_failed_worker_ends_the_launch_with_its_name_and_host(bed, tmp_path, launcher):
    outcome = launch(bed, filled_folder(tmp_path, FAIL), launcher)
    assert outcome["reason"] == "worker-1 on n1 ended with exit code 3"
    assert not await_quiet(bed, "n0", "n1")


def test_a_launch_is_ended_at_its_time_limit_with_all_that_it_started(bed, tmp_path):
    outcome = launch(bed, filled_folder(tmp_path, SLEEP), time_limit_s=12)
    assert "time limit of 12 s" in outcome["reason"]
    assert started(tmp_path, limit_s=0)
    assert not await_quiet(bed, "n0", "n1")


@pytest.mark.parametrize("launcher", ["ssh", "slurm"])
def test_a_killed_controller_leaves_no_process_on_any_host(bed, tmp_path, launcher):
    filled_folder(tmp_path, SLEEP)
    reach = "slurm" if launcher == "slurm" else "ssh"
    command = [PYTHON, LAUNCH, str(tmp_path), launcher, reach, "n0,n1", "time_limit_s=300"]
    pid = tmp_path / "pid"
    shell = ["bash", "-c", f'echo $$ >{pid}; exec "$@"', "bash", *command]
    allocation = ["salloc", "-Q", "--nodelist=n0,n1", "--exclusive"] if reach == "slurm" else []
    controller = subprocess.Popen(
        bed.command("head", [*allocation, *shell]),
        env=bed.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert started(tmp_path)
    bed.run("kill", "-9", pid.read_text().strip())
    controller.wait()
    assert not await_quiet(bed, "n0", "n1")


def test_a_killed_ssh_leaves_no_process_on_its_host(bed, tmp_path):
    filled_folder(tmp_path, SLEEP)
    command = bed.command("head", [PYTHON, LAUNCH, str(tmp_path), "ssh", "ssh", "n0,n1", "time_limit_s=300"])
    controller = subprocess.Popen(
        command, env=bed.variables(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert started(tmp_path)
    line = next(
        each for each in bed.run("ps", "-eo", "pid,args").stdout.splitlines() if "ssh -o" in each and " n1 " in each
    )
    bed.run("kill", "-9", line.split()[0])
    said, _ = controller.communicate()
    assert "the line to host-n1 ended" in json.loads(said.splitlines()[-1])["reason"]
    assert not await_quiet(bed, "n0", "n1")


def test_a_link_that_goes_down_for_a_second_fails_the_launch_with_its_host(bed, tmp_path):
    filled_folder(tmp_path, "import os, time; open('started-' + os.environ['STEPTIME_RANK'], 'w'); time.sleep(12)")
    command = bed.command("head", [PYTHON, LAUNCH, str(tmp_path), "ssh", "ssh", "n0,n1", "time_limit_s=120"])
    controller = subprocess.Popen(
        command, env=bed.variables(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert started(tmp_path)
    bed.set_link("n1", up=False)
    time.sleep(1.0)
    bed.set_link("n1", up=True)
    said, _ = controller.communicate()
    assert json.loads(said.splitlines()[-1])["reason"] == "the link of n1 (eth0) went down during the launch"


def test_a_launch_of_which_a_worker_stood_still_for_a_moment_has_failed_on_hosts(bed, tmp_path):
    program = """
        import os, signal, subprocess, time
        if os.environ["STEPTIME_RANK"] == "1":
            subprocess.Popen(["sh", "-c", "sleep 0.3; kill -CONT %d" % os.getpid()])
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1)
    """
    assert launch(bed, filled_folder(tmp_path, program))["reason"] == "worker-1 on n1 is stopped by a signal"


@pytest.mark.parametrize("launcher", ["ssh", "slurm"])
def test_a_dead_host_fails_the_launch_with_its_name(bed, tmp_path, launcher):
    filled_folder(tmp_path, SLEEP)
    reach = "slurm" if launcher == "slurm" else "ssh"
    allocation = ["salloc", "-Q", "--nodelist=n0,n3", "--no-kill"] if reach == "slurm" else []
    command = bed.command(
        "head", [*allocation, PYTHON, LAUNCH, str(tmp_path), launcher, reach, "n0,n3", "time_limit_s=120"]
    )
    controller = subprocess.Popen(
        command, env=bed.variables(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert started(tmp_path)
    bed.kill("n3")
    said, _ = controller.communicate()
    bed.revive("n3")
    outcome = json.loads(said.splitlines()[-1])
    assert "n3" in outcome["reason"]
    assert "n3" in outcome["lost_hosts"]
    assert not await_quiet(bed, "n0")


def test_a_dead_host_is_lost_also_where_a_worker_that_misses_its_peer_fails_first(bed, tmp_path):
    program = """
        import os, pathlib, time
        open("started-" + os.environ["STEPTIME_RANK"], "w").close()
        while not pathlib.Path("peer-is-gone").exists():
            time.sleep(0.01)
        raise SystemExit(5)
    """
    filled_folder(tmp_path, program)
    allocation = ["salloc", "-Q", "--nodelist=n0,n3", "--no-kill"]
    arguments = [str(tmp_path), "slurm", "slurm", "n0,n3", "time_limit_s=120"]
    command = bed.command("head", [*allocation, PYTHON, LAUNCH, *arguments])
    controller = subprocess.Popen(
        command, env=bed.variables(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert started(tmp_path)
    bed.kill("n3")
    (tmp_path / "peer-is-gone").touch()
    said, _ = controller.communicate()
    bed.revive("n3")
    outcome = json.loads(said.splitlines()[-1])
    assert outcome["reason"] == "worker-0 on n0 ended with exit code 5"
    assert outcome["lost_hosts"] == ["n3"]


@pytest.mark.parametrize("framework", ["chainer", "cntk"])
def test_an_mpiexec_reaches_other_hosts_through_the_host_agents(bed, tmp_path, framework):
    interpreter = ready_interpreter(framework)
    if interpreter is None:
        pytest.skip(f"no environment of {framework}, which brings an MPI: steptime env create {framework}")
    outcome = launch(bed, filled_folder(tmp_path, WRITE_PLACE), "mpi", interpreter=interpreter)
    assert outcome["ok"], outcome
    assert {name: place["host"] for name, place in places(tmp_path).items()} == {"worker-0": "n0", "worker-1": "n1"}


@pytest.mark.parametrize("framework", ["chainer", "cntk"])
def test_workers_of_one_host_share_memory_where_an_mpiexec_starts_them(bed, tmp_path, framework):
    found = sent_to_neighbour(bed, tmp_path, framework)
    assert [place["host"] for place in found] == ["n0", "n0", "n1", "n1"]
    assert found[0]["near_bytes"] < 8 << 20  # of 64 MiB that rank 0 has sent to rank 1


def test_the_transports_of_open_mpi_that_a_study_sets_are_those_of_all_workers(bed, tmp_path):
    found = sent_to_neighbour(bed, tmp_path, "cntk", OMPI_MCA_btl="tcp,self", OMPI_MCA_pml="ob1")
    assert {(place["OMPI_MCA_btl"], place["OMPI_MCA_pml"]) for place in found} == {("tcp,self", "ob1")}
    assert found[0]["near_bytes"] > 64 << 20


def test_the_transports_of_mpich_that_a_study_sets_are_those_of_all_workers(bed, tmp_path):
    found = sent_to_neighbour(bed, tmp_path, "chainer", UCX_TLS="tcp,self")
    assert {place["UCX_TLS"] for place in found} == {"tcp,self"}


def sent_to_neighbour(bed: ClusterBed, folder: Path, framework: str, **variables: str) -> list[dict[str, Any]]:
    """Have four workers on two hosts send 64 MiB from the first to the second; return what each has seen."""
    interpreter = ready_interpreter(framework)
    if interpreter is None:
        pytest.skip(f"no environment of {framework}, which brings an MPI: steptime env create {framework}")
    given = {"interpreter": interpreter, "workers": 4, "workers_per_host": 2, "variables": json.dumps(variables)}
    program = SEND_TO_NEIGHBOUR.replace("libmpi.so", f"{library_folder(interpreter)}/libmpi.so")
    outcome = launch(bed, filled_folder(folder, program), "mpi", time_limit_s=120, **given)
    assert outcome["ok"], outcome
    return [place for _, place in sorted(places(folder).items())]


def library_folder(interpreter: Path) -> Path:
    """Return the folder of the environment that holds the library of its MPI."""
    return next(interpreter.parents[1].glob("lib/**/libmpi.so*")).parent


def test_a_copy_on_local_disks_is_started_by_ssh(bed, tmp_path):
    assert prefixes_of_copies(bed, tmp_path, "ssh", made_environment(tmp_path)) == {tmp_path / "disk"}


@pytest.mark.parametrize("framework", ["chainer", "cntk"])
def test_a_copy_on_local_disks_is_started_by_an_mpiexec_of_that_copy(bed, tmp_path, framework):
    interpreter = ready_interpreter(framework)
    if interpreter is None:
        pytest.skip(f"no environment of {framework}, which brings an MPI: steptime env create {framework}")
    assert prefixes_of_copies(bed, tmp_path, "mpi", interpreter) == {tmp_path / "disk"}


def test_a_local_folder_that_cannot_be_used_is_named_with_its_host(bed, tmp_path):
    interpreter = made_environment(tmp_path)
    given = {"interpreter": interpreter, "environment": interpreter.parents[1], "local_folder": "/proc/copies"}
    outcome = launch(bed, filled_folder(tmp_path, WRITE_PLACE), **given)
    assert "n0: hosts.local_folder: /proc/copies cannot be used" in outcome["reason"]


DROP = """
import json, sys
from dataclasses import asdict
from steptime.catalog.found_site import FoundHost
from steptime.execution.page_cache import drop_on_hosts
hosts = [FoundHost(name) for name in sys.argv[2].split(",")]
found = drop_on_hosts(hosts, "ssh", {"dataset": {"path": sys.argv[1]}})
print(json.dumps(found and {**asdict(found), "dropped": found.dropped}))
"""


def dropped(bed: ClusterBed, path: Path, hosts: str) -> dict[str, Any] | None:
    """Drop a file from the page caches of hosts, as loader launches do before they begin."""
    done = bed.run(PYTHON, "-c", DROP, str(path), hosts)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def read_file(tmp_path) -> Path:
    """A file of two pages in a folder of its own, which was just read."""
    path = tmp_path / "data" / "images"
    path.parent.mkdir()
    path.write_bytes(b"x" * 8192)
    if subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, check=True).stdout.strip() == b"tmpfs":
        pytest.skip("files in memory cannot be dropped")
    subprocess.run(["sync", path], check=True)
    path.read_bytes()
    return path


def test_a_dataset_is_dropped_from_the_page_cache_of_every_host(bed, read_file):
    assert dropped(bed, read_file, "n0,n1") == {"share_before": 1.0, "share_after": 0.0, "files": 1, "dropped": True}


def test_a_dataset_that_one_host_keeps_in_memory_is_not_cold(bed, read_file):
    kept = f"mount -t tmpfs memory {read_file.parent} && head -c 8192 /dev/zero >{read_file}"
    assert bed.run("sh", "-c", kept, node="n1").returncode == 0
    try:
        found = dropped(bed, read_file, "n0,n1")
    finally:
        bed.run("umount", str(read_file.parent), node="n1")
    assert (found["share_after"], found["dropped"]) == (1.0, False)


def test_where_a_host_does_not_answer_nothing_is_said_of_the_page_cache(bed, read_file):
    assert dropped(bed, read_file, "n0,n9") is None


JOB_OF_LOADER = """
import sys
from pathlib import Path
sys.path.append(sys.argv[2])
from trials import trial
from steptime.catalog.cluster import cluster_for
from steptime.catalog.found_site import FoundHost, Site
from steptime.execution.living_hosts import LivingHosts
from steptime.runner.trial_runs import TrialInputs, loader_runs
from steptime.catalog.workloads.table import build_workload
site = Site((FoundHost("n0"), FoundHost("n1")), "ssh", "the study")
hosts = LivingHosts(site, 2, lambda site: site, lambda site: site.names, print)
cluster = cluster_for(workers=2, own_servers=0, kind="found")
made = trial(workers=2, strategy="allreduce", launcher="ssh", hosts=2, cluster=cluster)
built = build_workload(made.workload, made.input_shape, made.classes)
loader = {"kind": "native", "dataset": {"path": sys.argv[1]}}
loader_runs(TrialInputs(Path("/"), {made.id: built}, {made.id: loader}), 1.0, hosts).make_job(made)
"""


def test_a_loader_launch_on_hosts_drops_its_dataset_on_each(bed, read_file, tmp_path):
    """The second node has another file under the name of the dataset, since nodes of the bed share one page cache."""
    other = tmp_path / "other" / "images"
    other.parent.mkdir()
    other.write_bytes(b"y" * 8192)
    subprocess.run(["sync", other], check=True)
    assert other.read_bytes()
    assert cached_share([other]) == 1.0
    assert bed.run("mount", "--bind", str(other.parent), str(read_file.parent), node="n1").returncode == 0
    try:
        done = bed.run(PYTHON, "-c", JOB_OF_LOADER, str(read_file), str(Path(LAUNCH).parents[1] / "runner"))
    finally:
        bed.run("umount", str(read_file.parent), node="n1")
    assert done.returncode == 0, done.stderr
    assert cached_share([read_file, other]) == 0.0


def made_environment(folder: Path) -> Path:
    """Make an environment that is complete and has nothing in it; return its interpreter."""
    made = folder / "cache" / "numpy-0123456789ab"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(made)], check=True)
    (made / "ready.json").write_text("{}")
    return made / "bin" / "python"


def prefixes_of_copies(bed: ClusterBed, folder: Path, launcher: str, interpreter: Path) -> set[Path]:
    """Run a launch from copies; return where the environments lie in which its workers have run."""
    disk = folder / "disk"
    given = {"interpreter": interpreter, "environment": interpreter.parents[1], "local_folder": disk}
    try:
        outcome = launch(bed, filled_folder(folder, WRITE_PLACE), launcher, time_limit_s=300, **given)
    finally:
        shutil.rmtree(disk, ignore_errors=True)
    assert outcome["ok"], outcome
    found = places(folder)
    assert sorted(found) == ["worker-0", "worker-1"]
    return {Path(place["prefix"]).parents[1] for place in found.values()}


@pytest.mark.skipif(missing_bubblewrap() is not None, reason=str(missing_bubblewrap()))
@pytest.mark.parametrize("launcher", ["ssh", "slurm", pytest.param("mpi", marks=pytest.mark.needs("mpi"))])
def test_hosts_start_workers_in_a_container_and_end_them_there(bed, tmp_path, launcher):
    own = tmp_path / "own"
    own.mkdir()
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "outside").touch()
    container = {"container": shlex.join(["bwrap", "--dev-bind", "/", "/", "--tmpfs", str(hidden), "--"])}
    look = "\n    assert not os.listdir(sys.argv[0].replace('start.py', 'hidden'))"
    outcome = launch(bed, filled_folder(tmp_path, WRITE_PLACE + look), launcher, **container)
    assert outcome["ok"], outcome
    assert {name: place["host"] for name, place in places(tmp_path).items()} == {"worker-0": "n0", "worker-1": "n1"}
    if launcher == "mpi":
        return
    assert not launch(bed, filled_folder(own, SLEEP), launcher, time_limit_s=8, **container)["ok"]
    assert await_quiet(bed, "n0", "n1") == []


def test_the_probe_ends_what_a_killed_host_agent_left_on_a_host_and_nothing_of_living_ones(bed, tmp_path):
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ended = f"999999:1:{bed.namespace('n1')}:{boot}"
    elsewhere = f"999999:1:{bed.namespace('n0')}:{boot}"
    ticks = bed.run("cut", "-d", " ", "-f", "22", "/proc/1/stat", node="n1").stdout.strip()
    lives = f"1:{ticks}:{bed.namespace('n1')}:{boot}"
    sleepers = {
        runner: subprocess.Popen(
            bed.command("n1", ["env", "STEPTIME_RUN=one", f"STEPTIME_RUNNER={runner}", "sleep", "600"])
        )
        for runner in (ended, elsewhere, lives, "nonsense")
    }
    try:
        deadline = time.monotonic() + 30
        while bed.processes("n1").count("sleep 600") < len(sleepers) and time.monotonic() < deadline:
            time.sleep(0.1)
        hosts = launch(bed, filled_folder(tmp_path, "pass"), probe=1)["site"]["hosts"]
        assert [host["ended"] for host in hosts] == [0, 1]
        assert sleepers[ended].wait(30) != 0
        assert [sleepers[runner].poll() for runner in (elsewhere, lives, "nonsense")] == [None] * 3
    finally:
        for each in sleepers.values():
            each.kill()
            each.wait()


def test_the_probe_says_what_each_host_has(bed, tmp_path):
    (first, second) = launch(bed, filled_folder(tmp_path, "pass"), probe=1)["site"]["hosts"]
    assert (first["interface"], first["address"], second["address"]) == ("eth0", "10.88.0.1", "10.88.0.2")
    assert first["cores"] == sorted(os.sched_getaffinity(0))
    assert first["cpu"]
    assert first["gpus"] == []
    assert abs(second["clock_offset_s"]) < 5
    assert second["shown_s"] is not None
    assert second["import_s"] > 0
    assert first["mpiexec"] == shutil.which("mpiexec")


def test_a_host_that_is_reached_by_another_name_is_known_by_the_one_in_its_workers_records(bed, tmp_path):
    found = launch(bed, filled_folder(tmp_path, WRITE_PLACE), hosts="n0,10.88.0.2", probe=1)["site"]["hosts"]
    assert [host["name"] for host in found] == ["n0", "10.88.0.2"]
    assert [host["own_name"] for host in found] == [places(tmp_path)[f"worker-{rank}"]["host"] for rank in range(2)]


def test_a_host_without_the_wanted_interface_is_refused_with_those_it_has(bed, tmp_path):
    refused = launch(bed, filled_folder(tmp_path, "pass"), probe=1, interface="ib0")["refused"]
    assert "n0 has no interface 'ib0' with an IPv4 address (it has lo 127.0.0.1, eth0 10.88.0.1)" in refused


def test_paths_that_a_host_lacks_are_named_with_it(bed, tmp_path):
    """The node n2 has another file system over a folder."""
    folder = filled_folder(tmp_path, "pass")
    hidden = tmp_path / "of-n0"
    (hidden / "photos").mkdir(parents=True)
    (hidden / "python").symlink_to(PYTHON)
    given = {"cache": tmp_path / "cache", "datasets": hidden / "photos", "interpreters": hidden / "python"}
    assert "refused" not in launch(bed, folder, hosts="n0,n2", probe=1, **given)
    assert not list((tmp_path / "cache").iterdir())
    bed.run("mount", "-t", "tmpfs", "none", str(hidden), node="n2")
    try:
        refused = launch(bed, folder, hosts="n0,n2", probe=1, **given)["refused"]
    finally:
        bed.run("umount", str(hidden), node="n2")
    assert f"n2 cannot read the dataset folder {hidden}/photos" in refused
    assert f"n2 cannot start the interpreter {hidden}/python" in refused
    assert "n0 cannot" not in refused


def test_a_second_address_of_an_interface_is_known(bed):
    """A host may reach the first one by any of them."""
    add = ["ip", "address", "add", "10.77.0.3/24", "dev", "eth0"]
    assert bed.run(*add, node="n2").returncode == 0
    program = "from steptime.launchers.hosts.host_facts import towards; print(towards('10.77.0.9', None))"
    said = bed.run(PYTHON, "-c", program, node="n2").stdout
    assert said.strip() == "{'interface': 'eth0', 'address': '10.77.0.3'}"


def test_a_host_that_cannot_be_reached_is_named_with_what_ssh_says(bed, tmp_path):
    refused = launch(bed, filled_folder(tmp_path, "pass"), hosts="n0,n9", probe=1)["refused"]
    assert "the line to host-n9 ended" in refused
    assert "Could not resolve hostname n9" in refused


def test_the_same_host_twice_is_refused(bed, tmp_path):
    command = [PYTHON, LAUNCH, str(filled_folder(tmp_path, "pass")), "ssh", "ssh", "n0,n0", "probe=1"]
    assert "n0 is the same host as n0" in json.loads(bed.run(*command).stdout)["refused"]


def test_messages_are_timed_between_hosts_by_the_command_that_a_user_types(bed, tmp_path):
    short = ["--sizes", "1KiB,64KiB", "--launches", "1", "--repeats", "5", "-o", str(tmp_path / "found"), "--json"]
    done = bed.run(PYTHON, "-m", "steptime", "net", "star", "--hosts", "n0,n1", *short, limit_s=300)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["net"]
    assert (row["launcher"], row["wrong"]) == ("ssh", 0)
    (launch,) = Store.open(tmp_path / "found").net()
    assert [worker.host for worker in launch.workers] == ["n0", "n1"]
    assert [host["name"] for host in launch.cluster["hosts"]] == ["n0", "n1"]
    assert min(host["sent_bytes"] for host in launch.cluster["hosts"]) > 10 * 64 * 1024


@pytest.fixture
def users_python(folder) -> list[str]:
    """The beginning of a command that runs, as somebody who is not root, a Python that has all of steptime."""
    made = folder / "python"
    name = f"python3.{sys.version_info.minor}"
    system = shutil.which(name, path="/usr/bin")
    if system is None:
        pytest.skip(f"missing /usr/bin/{name}, which other users can run: {install_command([f'{name}-venv'])}")
    subprocess.run([system, "-m", "venv", "--without-pip", str(made)], check=True)
    paths = [str(Path(steptime.__file__).parents[1]), *site.getsitepackages()]
    (made / "lib" / Path(system).name / "site-packages" / "steptime.pth").write_text("\n".join(paths))
    command = [*AS_SOMEBODY, "env", f"HOME={folder}", f"STEPTIME_CACHE={folder}/cache", f"{made}/bin/python"]
    if subprocess.run([*command, "-c", "import pydantic, steptime"], capture_output=True, check=False).returncode:
        pytest.skip(f"other users cannot read {Path(steptime.__file__).parents[2]}: clone steptime to where they can")
    return command


def test_an_ordinary_user_submits_a_study_to_slurm(bed, folder, users_python):
    (folder / "small.yaml").write_text(SMALL_STUDY)
    results = folder / "results"
    short = ["-P", "-m", "steptime", "submit", f"{folder}/small.yaml", "slurm.nodes=2", "-o", str(results)]
    said = bed.run(*users_python, *short, limit_s=300)
    assert "submitted as job" in said.stdout, said.stderr
    deadline = time.monotonic() + 600
    while bed.run("squeue", "-h", "-u", str(SOMEBODY)).stdout and time.monotonic() < deadline:
        time.sleep(1)
    log = "\n".join(each.read_text() for each in folder.glob("results.job-*.log"))
    assert results.exists(), log
    store = Store.open(results)
    launches = [launch for trial in store.trials() for launch in store.launches(trial.id)]
    assert [launch.status for launch in launches] == ["ok"], log
    assert [worker.host for worker in launches[0].workers] == ["n0", "n1"]
    assert results.stat().st_uid == SOMEBODY
