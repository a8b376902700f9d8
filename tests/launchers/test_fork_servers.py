"""Processes that are forked from one which has imported their framework."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import steptime
from living_processes import has_ended, wait_until
from steptime.catalog.manifest import load_manifests
from steptime.launchers.fork_servers import Preloading, await_copies
from steptime.launchers.namespaces import NAMESPACE, isolation_kind
from steptime.launchers.request import Request
from steptime.launchers.table import launcher_named
from steptime.worker import fork_server

REFERENCE = load_manifests()["reference"]
FACTS = """
import json, os, sys
facts = {
    "numpy": "numpy" in sys.modules,
    "leak": getattr(sys, "leak", None),
    "network": os.stat("/proc/self/ns/net").st_ino,
    "interfaces": os.listdir("/sys/class/net"),
    "parent": os.getppid(),
    "rank": os.environ["STEPTIME_RANK"],
    "drawn": sys.modules["numpy"].random.random() if "numpy" in sys.modules else None,
}
sys.leak = True
with open("facts-" + facts["rank"], "w") as file:
    json.dump(facts, file)
"""


@pytest.fixture
def preloading():
    made = Preloading()
    yield made
    made.close()


@pytest.fixture
def run(preloading, tmp_path):
    """Return what runs a program as a preloaded launch in a new folder and returns the outcome and the folder."""

    def launched(program, manifest=REFERENCE, interpreter=Path(sys.executable), **fields):
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "start.py").write_text(program)
        request = Request(folder, interpreter, **{"workers": 1, "time_limit_s": 60.0, **fields})
        return launcher_named("local").run(preloading.request(request, manifest)), folder

    return launched


def facts_of(folder, rank=0):
    return json.loads((folder / f"facts-{rank}").read_text())


def test_a_forked_process_begins_with_its_framework_imported(run):
    outcome, folder = run(FACTS)

    assert outcome.ok
    assert facts_of(folder)["numpy"]


def a_request(folder, **fields):
    return Request(folder, Path(sys.executable), **{"workers": 1, "time_limit_s": 60.0, **fields})


def test_a_framework_is_imported_before_its_launch_may_take_cores(preloading, tmp_path):
    preloading.request(a_request(tmp_path), REFERENCE)

    (server,) = preloading._servers.values()
    assert "numpy" in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_a_launch_that_is_cancelled_waits_for_no_import(preloading, tmp_path):
    cancelled = threading.Event()
    cancelled.set()
    preloading.request(a_request(tmp_path, cancelled=cancelled), REFERENCE)

    (server,) = preloading._servers.values()
    assert "numpy" not in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_nothing_that_one_process_changes_reaches_the_next_one(run):
    first, second = (facts_of(run(FACTS)[1]) for _ in range(2))

    assert first["parent"] == second["parent"]
    assert second["leak"] is None


def test_two_processes_draw_different_numbers_where_nothing_is_seeded(run):
    _, folder = run(FACTS, workers=2)

    assert facts_of(folder, 0)["drawn"] != facts_of(folder, 1)["drawn"]


@pytest.mark.skipif(isolation_kind() is None, reason="no network namespace can be made here")
def test_a_forked_process_is_in_the_network_of_its_launch(run):
    _, folder = run(FACTS, workers=2)

    facts = [facts_of(folder, rank) for rank in range(2)]
    assert facts[0]["network"] == facts[1]["network"] != Path("/proc/self/ns/net").stat().st_ino


BUSY = """
import os, threading, time
os.register_at_fork(after_in_child=lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start())
"""
OF_EACH_THREAD = """
import json, os
tasks = os.listdir("/proc/self/task")
with open("networks", "w") as file:
    json.dump([os.stat("/proc/self/task/%s/ns/net" % task).st_ino for task in tasks], file)
os._exit(0)
"""


of_root = pytest.mark.skipif(isolation_kind() != NAMESPACE, reason="only root may enter with a thread beside")


@pytest.fixture
def busy(run, tmp_path):
    """Return what runs a program of which a library begins a thread in every copy of the import, as MXNet does."""
    (tmp_path / "busy.py").write_text(BUSY)
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    interpreter.chmod(0o700)
    preloading = REFERENCE.preloading.model_copy(update={"imports": ["busy"]})
    return partial(run, manifest=REFERENCE.model_copy(update={"preloading": preloading}), interpreter=interpreter)


@of_root
def test_threads_that_a_library_begins_in_every_copy_are_in_the_network_of_the_launch(busy):
    _, folder = busy(OF_EACH_THREAD)

    networks = json.loads((folder / "networks").read_text())
    assert (folder / "worker-0.forked").exists()
    assert len(networks) == 2
    assert networks[0] == networks[1] != Path("/proc/self/ns/net").stat().st_ino


ENDS = [
    pytest.param("import os; os._exit(3)", "exit code 3", id="exit code"),
    pytest.param("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV", id="signal"),
    pytest.param("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL", id="killed"),
    pytest.param("raise ValueError('planted')", "exit code 1", id="exception"),
]


@pytest.mark.parametrize(("program", "end"), ENDS)
def test_a_forked_process_ends_as_a_started_one_does(run, program, end):
    outcome, _ = run(program)

    assert end in outcome.reason


@of_root
@pytest.mark.parametrize(("program", "end"), ENDS)
def test_a_forked_process_of_which_a_copy_went_on_ends_as_that_does(busy, program, end):
    outcome, folder = busy(program)

    assert (folder / "worker-0.forked").exists()
    assert end in outcome.reason


def test_a_process_begins_afresh_where_its_server_has_ended(preloading, tmp_path):
    request = Request(tmp_path, Path(sys.executable), 1, time_limit_s=60.0)
    preloaded = preloading.request(request, REFERENCE)
    (server,) = preloading._servers.values()
    server.process.kill()  # as somebody does who looks for memory
    server.process.wait()
    (tmp_path / "start.py").write_text(FACTS)

    assert launcher_named("local").run(preloaded).ok
    assert not facts_of(tmp_path)["numpy"]


def test_a_server_that_dies_meanwhile_is_a_crash_of_its_processes(preloading, tmp_path):
    request = Request(tmp_path, Path(sys.executable), 1, time_limit_s=60.0)
    preloaded = preloading.request(request, REFERENCE)
    (tmp_path / "start.py").write_text("import time; open('begun', 'w').close(); time.sleep(60)")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launcher_named("local").run, preloaded)
        assert wait_until((tmp_path / "begun").exists)
        copy = int((tmp_path / "worker-0.forked").read_text())
        preloading.close()

        assert "SIGABRT" in running.result().reason
    assert has_ended(copy)


def test_a_launch_that_is_ended_leaves_no_copy(run):
    outcome, folder = run("import time; time.sleep(60)", time_limit_s=6.0)
    await_copies(folder)

    assert "not finished" in outcome.reason
    assert has_ended(int((folder / "worker-0.forked").read_text()))


def test_a_container_is_not_preloaded(preloading, tmp_path):
    request = Request(tmp_path, Path(sys.executable), 1)

    assert (
        preloading.request(replace(request, container=("podman", "run")), REFERENCE).interpreter == request.interpreter
    )


HELPED = """
import multiprocessing

if __name__ == "__main__":
    context = multiprocessing.get_context("METHOD")
    helper = context.Process(target=print, args=("it found the script",))
    helper.start()
    helper.join(30)
    with open("helper", "w") as file:
        file.write(str(helper.exitcode))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_helpers_of_a_forked_process_find_its_script(run, method):
    preloading = REFERENCE.preloading.model_copy(update={"imports": ["numpy", "multiprocessing.process"]})

    _, folder = run(HELPED.replace("METHOD", method), REFERENCE.model_copy(update={"preloading": preloading}))

    assert (folder / "helper").read_text() == "0"


IMPORTED = """
import importlib, json, runpy, sys
sys.path.append(sys.argv[1])
runpy.run_path(sys.argv[2])["import_all"](sys.argv[3], sys.argv[4:])
print(json.dumps({name: module.__file__ for name, module in sys.modules.items() if name in ("lib", "steptime")}))
"""


@pytest.fixture
def installed(tmp_path):
    """Return the folders of an environment and of an installed steptime, both with another build of a library."""
    for place, build in (("environment", "own"), ("installed", "other")):
        (tmp_path / place / "lib").mkdir(parents=True)
        (tmp_path / place / "lib" / "__init__.py").write_text(f"build = {build!r}\n")
    (tmp_path / "installed" / "only.py").touch()
    (tmp_path / "installed" / "steptime").symlink_to(Path(steptime.__file__).parent)
    return tmp_path / "environment", tmp_path / "installed"


def imported(installed, *names):
    environment, source = installed
    words = [sys.executable, "-I", "-S", "-c", IMPORTED, environment, fork_server.__file__, source, *names]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.splitlines()[-1]


@pytest.mark.parametrize("names", [["lib"], ["steptime.errors", "lib"], ["lib", "steptime.errors"]], ids=" ".join)
def test_a_framework_is_that_of_its_environment_not_one_beside_an_installed_steptime(installed, names):
    assert imported(installed, *names)["lib"].startswith(str(installed[0]))


def test_steptime_is_found_where_it_is_installed(installed):
    assert imported(installed, "steptime.errors")["steptime"].startswith(str(installed[1]))


def test_what_lies_beside_an_installed_steptime_alone_is_not_found(installed):
    assert imported(installed, "only") == "ModuleNotFoundError: No module named 'only'"
