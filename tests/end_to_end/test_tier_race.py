"""A framework whose tier ``tuned`` really changes the time of a step is raced in both tiers, by real processes."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from steptime.analysis.summary import summarise
from steptime.catalog.accelerators import Accelerators
from steptime.catalog.manifest import load_manifest, load_manifests
from steptime.execution.progress import Silent
from steptime.expansion.expansion import expand
from steptime.report.sections import StudyFindings, WholeReport
from steptime.results.store import Store
from steptime.runner.plan import plan_study
from steptime.runner.study_run import StudyRun

STUDY = """\
workloads: [{name: lenet5, batch_per_worker: 4}]
frameworks: reference
strategies: single
loaders: synthetic
tuning: [documented, tuned]
equivalence: {enabled: false}
launches: {min: 3, max: 3}
seconds_per_launch: 0.3
steps: {warmup: 1, min: 5, max: 20}
"""
OPTION = """
[options.pause_ms]
help = "milliseconds that every step sleeps, which is planted"
type = "float"
default = 100.0

[tuned]
pause_ms = 0.0
"""
ADAPTER = '''
"""The framework's own adapter, whose step sleeps as an option says."""

import time

from steptime.worker.framework import Framework


def open_session(job, context):
    """Open the framework's session and plant the pause."""
    from steptime.frameworks.reference.trained import FRAMEWORK as REAL

    session = REAL.open_session(job, context)
    step, pause_s = session.step, job["options"]["pause_ms"] / 1000.0

    def slowly():
        time.sleep(pause_s)
        step()

    session.step = slowly
    return session


FRAMEWORK = Framework(open_session=open_session)
'''


def planted_folder(folder: Path) -> Path:
    """Copy the reference into ``folder`` with an option that makes its steps slow where nobody tunes it."""
    copied = folder / "reference"
    shutil.copytree(load_manifests()["reference"].folder, copied)
    (copied / "adapter.py").rename(copied / "trained.py")
    (copied / "adapter.py").write_text(ADAPTER)
    text = (copied / "framework.toml").read_text()
    (copied / "framework.toml").write_text(text.replace("\n[back_ends", f"{OPTION}\n[back_ends", 1))
    return copied


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """The results of a run of the planted framework in both tiers."""
    folder = tmp_path_factory.mktemp("tiers")
    (folder / "small.yaml").write_text(STUDY)
    manifests = {**load_manifests(), "reference": load_manifest(planted_folder(folder) / "framework.toml")}
    plan = plan_study(str(folder / "small.yaml"), [], folder / "results", None)
    plan = replace(plan, manifests=manifests, expansion=expand(plan.study, manifests, {}, Accelerators()))
    StudyRun(plan, Silent()).run()
    return Store.open(folder / "results")


@pytest.fixture(scope="module")
def summary(store):
    return summarise(store)


def test_both_tiers_were_run_with_their_own_values(store):
    jobs = [json.loads(path.read_text()) for path in store.path.glob("trials/*/launch-0/job.json")]
    assert sorted(job["options"]["pause_ms"] for job in jobs) == [0.0, 100.0]


def test_the_gain_of_tuned_is_that_of_the_planted_option(summary):
    (tuned,) = summary.tuned
    times = {trial.tuning: trial.step_time_s.mean for trial in summary.trials}
    assert tuned.speedup.value == pytest.approx(times["documented"] / times["tuned"])
    assert tuned.speedup.low <= tuned.speedup.value <= tuned.speedup.high


def test_steps_pause_where_nobody_tunes_them_and_only_there(store):
    """Of many steps the shortest is taken: on a busy machine single ones last for any time."""
    shortest = {
        trial.tuning: min(
            later - earlier
            for launch in store.launches(trial.id)
            for worker in launch.workers
            for earlier, later in pairwise([worker.origin_s, *worker.ends_s])
        )
        for trial in store.trials()
    }
    assert shortest["tuned"] < 0.1 <= shortest["documented"]


def test_what_tuned_changed_stands_in_the_report(summary):
    console = Console(width=160)
    with console.capture() as captured:
        console.print(WholeReport(StudyFindings(summary)))
    assert "by pause_ms=0.0 (documented 100.0)" in captured.get()


def test_a_second_run_of_the_study_launches_nothing_more(store, summary):
    assert sum(trial.launches for trial in summary.trials) == 6
    assert {trial.tuning for trial in store.trials()} == {"documented", "tuned"}
