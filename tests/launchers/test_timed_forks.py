"""Which launches that are timed are forked, and from which process that has imported their framework."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from living_processes import has_ended
from steptime.catalog.manifest import load_manifests
from steptime.launchers import fork_servers
from steptime.launchers.fork_servers import Preloading, import_of
from steptime.launchers.request import Request
from steptime.launchers.table import launcher_named
from steptime.worker.usage import cpu_s

REFERENCE = load_manifests()["reference"]
TIMED = REFERENCE.model_copy(update={"preloading": REFERENCE.preloading.model_copy(update={"timed": True})})
FRESH = Path(sys.executable)


@pytest.fixture
def preloading():
    made = Preloading()
    yield made
    made.close()


def a_request(folder, **fields):
    return Request(
        folder, FRESH, **{"workers": 1, "time_limit_s": 60.0, "cores": tuple(os.sched_getaffinity(0)), **fields}
    )


def server_of(preloading, request):
    return next(each for each in preloading._servers.values() if each.stand_in == request.interpreter)


def test_each_launch_of_a_trial_has_an_import_of_its_own(preloading, tmp_path):
    first, second = (preloading.timed_request(a_request(tmp_path), TIMED, "a", 1).interpreter for _ in range(2))

    assert first != second


def test_an_import_serves_all_trials(preloading, tmp_path):
    first, other = (preloading.timed_request(a_request(tmp_path), TIMED, name, 1).interpreter for name in "ab")

    assert first == other != FRESH


def test_an_import_serves_as_many_launches_of_a_trial_as_a_study_allows(preloading, tmp_path):
    found = [preloading.timed_request(a_request(tmp_path), TIMED, "a", 2).interpreter for _ in range(4)]

    assert found[0] == found[1] != found[2] == found[3]


def test_the_import_of_the_checks_serves_the_first_launch(preloading, tmp_path):
    checked = preloading.request(a_request(tmp_path, cores=()), TIMED).interpreter

    assert preloading.timed_request(a_request(tmp_path), TIMED, "a", 1).interpreter == checked


def test_an_import_serves_launches_of_several_workers(preloading, tmp_path):
    one, two = (
        preloading.timed_request(a_request(tmp_path, workers=workers), TIMED, str(workers), 1).interpreter
        for workers in (1, 2)
    )

    assert one == two


def test_an_import_that_has_served_its_launches_is_ended(preloading, tmp_path):
    worn = server_of(preloading, preloading.timed_request(a_request(tmp_path), TIMED, "a", 1))
    preloading.timed_request(a_request(tmp_path), TIMED, "a", 1)

    assert has_ended(worn.process.pid)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"environment_variables": {"MKL_CBWR": "AVX2"}}, id="variable of the trial"),
        pytest.param({"threads": 2}, id="threads"),
        pytest.param({"interpreter": Path(sys.executable).resolve()}, id="environment"),
    ],
)
def test_what_an_import_may_read_is_that_of_its_launches(preloading, tmp_path, fields):
    if fields.get("interpreter") == FRESH:
        pytest.skip("this Python is reached through no link")
    usual = preloading.timed_request(a_request(tmp_path), TIMED, "a", 9).interpreter

    assert preloading.timed_request(replace(a_request(tmp_path), **fields), TIMED, "a", 9).interpreter != usual


@pytest.mark.parametrize(
    ("fields", "manifest", "most"),
    [
        pytest.param({}, REFERENCE, 1, id="not measured"),
        pytest.param({}, TIMED, 0, id="not wanted"),
        pytest.param({"on_devices": True}, TIMED, 1, id="on devices"),
        pytest.param({"cores_per_worker": 1}, TIMED, 1, id="cores of its own"),
        pytest.param({"container": ("podman", "run")}, TIMED, 1, id="container"),
    ],
)
def test_a_launch_that_forks_were_not_shown_to_be_like_is_fresh(preloading, tmp_path, fields, manifest, most):
    request = a_request(tmp_path, **fields)

    assert preloading.timed_request(request, manifest, "a", most) == request


COUNTED = """
import json, os, sys
with open("seen", "w") as file:
    json.dump([len(os.sched_getaffinity(0)), sys.modules["counted"].CORES], file)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is one core")
def test_an_import_sees_as_many_cores_as_a_worker_and_a_copy_those_of_its_launch(preloading, tmp_path, monkeypatch):
    (tmp_path / "counted.py").write_text("import os\nCORES = len(os.sched_getaffinity(0))\n")
    (tmp_path / "start.py").write_text(COUNTED)
    imports = TIMED.preloading.model_copy(update={"imports": ["site:main", "counted"]})
    monkeypatch.setattr(fork_servers, "_SOURCE", tmp_path)
    monkeypatch.setattr(fork_servers, "inherited", lambda _: {"PYTHONPATH": str(tmp_path)})
    request = preloading.timed_request(a_request(tmp_path), TIMED.model_copy(update={"preloading": imports}), "a", 1)

    assert launcher_named("local").run(request).ok
    assert (tmp_path / "seen").read_text() == f"[{len(os.sched_getaffinity(0))}, 1]"


def test_an_import_takes_no_processor_time_while_others_are_timed(preloading, tmp_path):
    server = server_of(preloading, preloading.timed_request(a_request(tmp_path), TIMED, "a", 1))
    before = cpu_s(str(server.process.pid))
    time.sleep(0.5)

    assert cpu_s(str(server.process.pid)) == before


def test_processor_time_of_copies_is_that_of_the_launch(preloading, tmp_path):
    request = preloading.timed_request(a_request(tmp_path), TIMED, "a", 1)
    (tmp_path / "start.py").write_text("import time\nwhile time.process_time() < 0.4: pass")
    before = preloading.processor_s()

    assert launcher_named("local").run(request).ok
    assert 0.3 < preloading.processor_s() - before < 1.0


def test_the_end_of_an_import_is_not_counted_twice(preloading, tmp_path):
    preloading.timed_request(a_request(tmp_path), TIMED, "a", 1)
    before = preloading.processor_s()
    preloading.close()

    assert abs(preloading.processor_s() - before) < 0.1


def test_where_memory_is_scarce_no_other_import_stays(preloading, tmp_path, monkeypatch):
    other = server_of(preloading, preloading.request(a_request(tmp_path, threads=2), TIMED))
    monkeypatch.setattr(fork_servers, "_LEAST_MEMORY_BYTES", psutil.virtual_memory().total)
    preloading.timed_request(a_request(tmp_path), TIMED, "a", 1)

    assert has_ended(other.process.pid)


def test_imports_of_timed_launches_stay_behind_checks(preloading, tmp_path):
    kept, ended = (
        server_of(preloading, preloading.request(a_request(tmp_path), manifest))
        for manifest in (TIMED, REFERENCE.model_copy(update={"name": "other"}))
    )
    preloading.close_but_timed()

    assert (has_ended(kept.process.pid), has_ended(ended.process.pid)) == (False, True)


@pytest.mark.parametrize("ended", [False, True])
def test_a_launch_has_the_name_of_the_import_that_it_was_forked_from(preloading, tmp_path, ended):
    request = preloading.timed_request(a_request(tmp_path), TIMED, "a", 1)
    if ended:  # its processes begin afresh
        server_of(preloading, request).process.kill()
    (tmp_path / "start.py").write_text("")

    assert launcher_named("local").run(request).ok
    assert import_of(request) == (None if ended else request.interpreter.parent.name)
