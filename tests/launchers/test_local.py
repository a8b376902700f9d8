"""The local launcher, with real processes whose ``start.py`` is written by each test."""

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from living_processes import is_alive, wait_until
from steptime.errors import LaunchError
from steptime.launchers.processes import how_it_ended
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import LocalLauncher

TIE = "from steptime.worker.tether import die_with_parent\ndie_with_parent()\n"


def launch(folder: Path, program: str, **fields: object) -> LaunchOutcome:
    (folder / "start.py").write_text(textwrap.dedent(program))
    settings = {"folder": folder, "interpreter": Path(sys.executable), "workers": 2, "time_limit_s": 20.0}
    return LocalLauncher().run(Request(**{**settings, **fields}))


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("*.pid") if path.read_text()]


WRITE_PID = """
    import os, time
    open(os.environ["STEPTIME_ROLE"] + os.environ["STEPTIME_RANK"] + ".pid", "w").write(str(os.getpid()))
"""


def test_a_launch_whose_workers_all_end_well_is_ok(tmp_path):
    outcome = launch(tmp_path, "pass")
    assert outcome.ok
    assert outcome.reason is None
    assert outcome.commands == [[sys.executable, "start.py", "job.json"]] * 2


def test_every_process_learns_its_role_and_rank(tmp_path):
    launch(tmp_path, WRITE_PID, workers=2, servers=2, scheduler=True)
    assert {path.name for path in tmp_path.glob("*.pid")} == {
        "worker0.pid",
        "worker1.pid",
        "server0.pid",
        "server1.pid",
        "scheduler0.pid",
    }


def test_a_dead_worker_ends_the_launch_at_once_and_is_named(tmp_path):
    program = """
        import os, sys, time
        if os.environ["STEPTIME_RANK"] == "1":
            sys.exit(7)
        time.sleep(60)
    """
    outcome = launch(tmp_path, program)
    assert outcome.reason == "worker-1 ended with exit code 7"
    assert outcome.wall_s < 40


def test_a_worker_that_the_system_kills_is_told_apart_from_one_that_fails(tmp_path):
    outcome = launch(tmp_path, "import os; os.kill(os.getpid(), 9)", workers=1)
    assert "SIGKILL" in outcome.reason
    assert "memory" in outcome.reason


@pytest.mark.parametrize(("number", "name"), [(34, "SIGRTMIN"), (39, "SIGRTMIN+5"), (64, "SIGRTMAX")])
def test_a_worker_that_a_signal_without_a_python_name_ends_is_a_failed_launch(tmp_path, number, name):
    outcome = launch(tmp_path, f"import os; os.kill(os.getpid(), {number})", workers=1)
    assert outcome.reason == f"worker-0 was ended by {name}"


def test_a_signal_that_the_library_of_threads_keeps_for_itself_has_a_number():
    assert how_it_ended(-32) == "was ended by signal 32"


def test_a_hung_launch_is_ended_at_its_time_limit(tmp_path):
    outcome = launch(tmp_path, WRITE_PID + "    time.sleep(60)", time_limit_s=1.5)
    assert "time limit of 1.5 s" in outcome.reason
    assert "worker-0, worker-1 still running" in outcome.reason
    assert outcome.wall_s < 40
    assert not any(is_alive(pid) for pid in pids(tmp_path))


HANGS = """
    import json, os, signal, time
    rank = int(os.environ["STEPTIME_RANK"])
    def record(*kinds):
        with open("worker-%d.jsonl" % rank, "a") as file:
            file.writelines(json.dumps({"kind": kind, "pid": os.getpid()}) + "\\n" for kind in kinds)
"""


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP) if rank == 1 else time.sleep(60)", "worker-1 is stopped by a signal"),
        (
            "record('process', *['session', 'warmup'][:rank + 1]); time.sleep(60)",
            "worker-0 got no further than the opening of its session, the others did",
        ),
        (
            "[record('process'), time.sleep(60)] if rank == 0 else time.sleep(60)",
            "worker-1 has recorded nothing, the others did",
        ),
    ],
)
def test_a_hung_launch_names_the_worker_that_the_others_wait_for(tmp_path, program, cause):
    outcome = launch(tmp_path, HANGS + "    " + program, time_limit_s=5.0)

    assert outcome.reason.split("; ")[-1] == cause


def test_the_reason_of_a_hang_quotes_the_last_lines_of_its_processes(tmp_path):
    program = """
        import os, time
        rank = os.environ["STEPTIME_RANK"]
        with open("worker-%s.err" % rank, "w") as file:  # as a worker does with its standard error
            file.write("first\\nbus error in worker\\n\\n" if rank != "2" else "")
        time.sleep(60)
    """
    outcome = launch(tmp_path, program, workers=3, time_limit_s=5.0)

    assert "still running; last line of worker-0, worker-1: bus error in worker" in outcome.reason
    assert "first" not in outcome.reason


def test_a_launch_of_which_a_worker_stood_still_for_a_moment_has_failed(tmp_path):
    program = """
        import os, signal, subprocess, time
        if os.environ["STEPTIME_RANK"] == "1":
            subprocess.Popen(["sh", "-c", "sleep 0.3; kill -CONT %d" % os.getpid()])
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1)
    """
    assert launch(tmp_path, program, time_limit_s=60.0).reason == "worker-1 is stopped by a signal"


def test_a_worker_that_ignores_the_request_to_end_is_killed(tmp_path):
    program = WRITE_PID + "    import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(60)"
    launch(tmp_path, program, workers=1, time_limit_s=8.0)  # on a busy machine Python takes more than a second to start
    assert len(pids(tmp_path)) == 1
    assert not any(is_alive(pid) for pid in pids(tmp_path))


def test_servers_that_never_end_are_ended_after_the_last_worker(tmp_path):
    program = WRITE_PID + '    time.sleep(60 if os.environ["STEPTIME_ROLE"] != "worker" else 0)'
    outcome = launch(tmp_path, program, servers=1, scheduler=True, time_limit_s=60.0)
    assert outcome.ok
    assert len(pids(tmp_path)) == 4
    assert not any(is_alive(pid) for pid in pids(tmp_path))


def test_a_number_that_a_process_has_in_a_container_blames_no_other_process(tmp_path):
    stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    stopped.send_signal(signal.SIGSTOP)
    program = f"""
        import json, time
        open("worker-0.jsonl", "w").write(json.dumps({{"kind": "process", "pid": {stopped.pid}}}) + "\\n")
        time.sleep(60)
    """
    try:
        outcome = launch(tmp_path, program, workers=1, time_limit_s=2.0)
    finally:
        stopped.kill()
        stopped.wait()
    assert "worker-0 still running" in outcome.reason
    assert "is stopped" not in outcome.reason


def test_what_a_worker_started_and_left_is_ended_too(tmp_path):
    program = """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        open("child.pid", "w").write(str(child.pid))
    """
    outcome = launch(tmp_path, program, workers=1)
    assert outcome.ok
    assert not is_alive(pids(tmp_path)[0])


def test_what_ends_slowly_has_ended_when_the_launch_has(tmp_path):
    program = """
        import subprocess, sys
        slow = "import mmap, time; kept = mmap.mmap(-1, 1 << 30); kept[::4096] = bytes(1 << 18); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", slow], start_new_session=True)
        open("child.pid", "w").write(str(child.pid))
        import time; time.sleep(60)
    """
    launch(tmp_path, program, workers=1, time_limit_s=6.0)  # the kernel takes its time to free what a process had
    assert not is_alive(pids(tmp_path)[0])


def test_a_cancelled_launch_ends(tmp_path):
    cancelled = threading.Event()
    threading.Timer(0.5, cancelled.set).start()
    outcome = launch(tmp_path, "import time; time.sleep(60)", cancelled=cancelled)
    assert outcome.reason == "cancelled"


def test_the_shells_python_settings_do_not_reach_a_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setenv("COVERAGE_PROCESS_START", "/elsewhere/coverage.ini")
    program = """
        import os
        assert not {"PYTHONPATH", "TF_CONFIG", "COVERAGE_PROCESS_START"} & set(os.environ)
        assert os.environ["PYTHONNOUSERSITE"] == "1"
    """
    assert launch(tmp_path, program).ok


def test_what_changes_speed_does_not_reach_a_worker_from_the_shell(tmp_path, monkeypatch):
    for name in ("NCCL_ALGO", "MXNET_CPU_WORKER_NTHREADS", "XLA_FLAGS", "KMP_AFFINITY", "OMP_PROC_BIND", "MALLOC_CONF"):
        monkeypatch.setenv(name, "of the shell")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    program = """
        import os
        assert "of the shell" not in os.environ.values()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    """

    assert launch(tmp_path, program).ok


def test_what_the_study_sets_reaches_workers_and_servers(tmp_path):
    program = """
        import os
        assert os.environ["KMP_BLOCKTIME"] == "7"
        assert os.environ["OMP_NUM_THREADS"] == "1"
    """
    variables = {"KMP_BLOCKTIME": "7", "OMP_NUM_THREADS": "64"}

    assert launch(tmp_path, program, servers=1, environment_variables=variables).ok


def test_every_worker_has_one_thread_pool_of_the_size_asked_for(tmp_path):
    program = """
        import os
        assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "3"
    """
    assert launch(tmp_path, program, threads=3).ok


def test_all_ports_of_a_launch_differ_and_are_free(tmp_path):
    program = """
        import os, socket
        names = ("STEPTIME_ROOT_ADDRESS", "STEPTIME_WORKER_ADDRESSES", "STEPTIME_SERVER_ADDRESSES")
        addresses = [address for name in names for address in os.environ[name].split(",")]
        assert len(set(addresses)) == 6, addresses
        first = (os.environ["STEPTIME_ROLE"], os.environ["STEPTIME_RANK"]) == ("worker", "0")
        for address in addresses if first else []:
            host, port = address.split(":")
            socket.create_server((host, int(port))).close()
    """
    assert launch(tmp_path, program, workers=3, servers=2).ok


def test_an_interpreter_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(LaunchError, match="/no/such/python"):
        launch(tmp_path, "pass", interpreter=Path("/no/such/python"))


RUNNER = f"""
import sys
from pathlib import Path
from steptime.launchers.table import LocalLauncher
from steptime.launchers.request import Request
LocalLauncher().run(Request(Path(sys.argv[1]), Path({sys.executable!r}), workers=2, time_limit_s=60.0))
"""


def start_runner(folder: Path, program: str) -> subprocess.Popen[bytes]:
    (folder / "start.py").write_text(textwrap.dedent(program))
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(folder)], stderr=subprocess.DEVNULL)
    assert wait_until(lambda: len(pids(folder)) == 2)
    return runner


def test_workers_die_with_a_runner_that_is_killed(tmp_path):
    runner = start_runner(tmp_path, TIE + textwrap.dedent(WRITE_PID) + "time.sleep(60)")
    runner.kill()
    runner.wait()
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids(tmp_path)))


def test_ctrl_c_ends_the_workers_before_the_runner_goes(tmp_path):
    runner = start_runner(tmp_path, WRITE_PID + "    time.sleep(60)")
    runner.send_signal(signal.SIGINT)
    assert runner.wait(10) != 0
    assert not any(is_alive(pid) for pid in pids(tmp_path))
