"""Timed launches of real frameworks that are forks of processes which have imported them, in whole runs of a study."""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from launching import interpreter_for

from living_processes import has_ended
from steptime.analysis.summary import summarise
from steptime.catalog.manifest import load_manifests
from steptime.execution.progress import Silent
from steptime.launchers import fork_servers
from steptime.launchers.fork_servers import Preloading
from steptime.report.conditions import settings
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store
from steptime.runner.plan import plan_study
from steptime.runner.study_run import StudyRun

STUDY = """\
version: 1
name: forks
workloads: [{name: lenet5, batch_per_worker: 16}]
frameworks: [FRAMEWORK]
strategies: [single, allreduce]
workers: [1, 2]
exclude: [{strategies: allreduce, workers: 1}, {strategies: single, workers: 2}]
loaders: [synthetic]
equivalence: {enabled: false}
launches: {min: 2, max: 2}
seconds_per_launch: 0.2
steps: {warmup: 2, min: 4, max: 200}
"""
ALONE = STUDY.replace("[single, allreduce]", "[single]").replace("[1, 2]", "[1]")
FRAMEWORKS = sorted(name for name, manifest in load_manifests().items() if manifest.preloading.timed)


def run(folder: Path, text: str, observer: Silent | None = None) -> Store:
    (folder / "forks.yaml").write_text(text)
    StudyRun(plan_study(str(folder / "forks.yaml"), [], folder / "results", None), observer or Silent()).run()
    return Store.open(folder / "results")


@pytest.fixture(scope="module")
def imports():
    """The processes that have imported each framework for its study, by its name."""
    return {}


@pytest.fixture(scope="module")
def stores(tmp_path_factory, imports):
    """Return what runs the study of a framework, once."""
    made: dict[str, Store] = {}
    start = fork_servers.subprocess.Popen

    def of(framework: str) -> Store:
        interpreter_for(framework)
        if framework in made:
            return made[framework]
        started = imports[framework] = []

        def noting(*words, **named):
            process = start(*words, **named)
            if any(str(word).endswith("fork_server.py") for word in words[0]):
                started.append(process.pid)
            return process

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fork_servers.subprocess, "Popen", noting)
            made[framework] = run(tmp_path_factory.mktemp(framework), STUDY.replace("FRAMEWORK", framework))
        return made[framework]

    return of


def launches(store):
    return {trial.strategy: list(store.iter_records(TIMING, trial.id)) for trial in store.trials()}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_launches_of_a_trial_are_forked_from_as_many_imports(stores, framework):
    for own in launches(stores(framework)).values():
        assert [each.status for each in own] == ["ok", "ok"], [each.reason for each in own]
        assert len({each.shared_import for each in own} - {None}) == 2


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_trials_of_a_framework_share_its_imports(stores, framework):
    names = Counter(each.shared_import for own in launches(stores(framework)).values() for each in own)

    assert sorted(names.values()) == [2, 2]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_forked_launch_is_told_from_a_fresh_one_in_the_conditions(stores, framework):
    assert all(f"had imported {framework}" in settings(trial) for trial in summarise(stores(framework)).trials)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_commands_of_a_forked_launch_can_be_typed(stores, framework):
    interpreter = str(interpreter_for(framework))

    assert {each.commands[0][0] for own in launches(stores(framework)).values() for each in own} == {interpreter}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_processor_time_of_forks_is_not_that_of_others(stores, framework):
    for own in launches(stores(framework)).values():
        for each in own:
            assert each.noise["own_cpu_cores"] * each.noise["wall_s"] > sum(one.usage["cpu_s"] for one in each.workers)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_forked_worker_has_threads_and_memory_like_a_fresh_one(stores, framework, tmp_path):
    text = ALONE.replace("FRAMEWORK", framework).replace("{min: 2, max: 2}", "{min: 1, max: 1, forks: 0}")
    (own,) = launches(run(tmp_path, text))["single"]
    assert own.shared_import is None
    for forked in launches(stores(framework))["single"]:
        (one,), (other,) = forked.workers, own.workers
        for name in ("cores", "live_threads", "thread_pools"):
            assert one.facts[name] == other.facts[name]
        assert 0.85 < one.usage["max_rss_bytes"] / other.usage["max_rss_bytes"] < 1.15


def test_a_variable_of_the_trial_is_there_when_its_framework_is_imported(tmp_path):
    interpreter_for("pytorch")
    both = ALONE.replace("FRAMEWORK", "pytorch").replace("min: 2, max: 2}", "min: 1, max: 1}")
    store = run(tmp_path, both + "include: {environment_variables: {TORCH_SHOW_CPP_STACKTRACES: '1'}}\n")
    (one,), (other,) = (list(store.iter_records(TIMING, trial.id)) for trial in store.trials())

    assert None not in {one.shared_import, other.shared_import}
    assert one.shared_import != other.shared_import


class Killing(Silent):
    """Ends every process that has imported a framework, while the first launch runs."""

    def __init__(self, kept: list[Preloading]) -> None:
        self.killed: list[int] = []
        self._kept = kept

    def working_on(self, what: str) -> None:
        if "launch 1" in what and not self.killed:
            threading.Thread(target=self._kill, daemon=True).start()

    def _kill(self) -> None:
        while not self.killed:
            for server in [each for made in self._kept for each in made._servers.values()]:
                children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
                if children:  # a copy runs
                    self.killed.append(server.process.pid)
                    os.kill(server.process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """What a run has of which an import is killed while it serves the first launch, and how many were."""
    interpreter_for("pytorch")
    kept: list[Preloading] = []
    made = Preloading.__init__
    killing = Killing(kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Preloading, "__init__", lambda self: (made(self), kept.append(self))[0])
        store = run(tmp_path_factory.mktemp("interrupted"), ALONE.replace("FRAMEWORK", "pytorch"), killing)
    return store, killing.killed


@pytest.mark.framework("pytorch")
def test_a_launch_whose_import_is_killed_meanwhile_is_repeated_in_fresh_processes(interrupted):
    store, killed = interrupted
    (own,) = launches(store).values()

    assert len(killed) == 1
    assert [each.status for each in own] == ["ok", "ok"]
    assert [each.shared_import is None for each in own] == [True, False]


@pytest.mark.framework("pytorch")
def test_launches_of_which_some_were_forked_are_marked(interrupted):
    (trial,) = summarise(interrupted[0]).trials

    assert any("different processes" in flag for flag in trial.flags), trial.flags


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_import_is_left_behind_a_run(stores, imports, framework):
    stores(framework)

    assert len(imports[framework]) == 2
    assert all(map(has_ended, imports[framework]))
