"""``steptime peak``: real products of matrices, kept where a report finds them."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from program import STUDY, steptime, write_study

from steptime.analysis.summary import summarise
from steptime.results.store import Store
from steptime.study.study import ENVIRONMENT_KEYS


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A results folder, and what the verb printed for it."""
    folder = tmp_path_factory.mktemp("peak")
    once = STUDY.replace("{min: 3, max: 3}", "{min: 1, max: 1}") + "equivalence: {enabled: false}\n"
    steptime("run", write_study(folder, once), "-o", "results", cwd=folder)
    return folder / "results", json.loads(steptime("peak", "results", "--json", cwd=folder).stdout)


def test_each_setting_of_the_trials_is_measured_once(measured):
    results, rows = measured
    wanted = sorted({(trial.device, trial.precision, trial.threads) for trial in Store.open(results).trials()})
    assert [(row["device"], row["precision"], row["threads"]) for row in rows] == wanted


def test_a_core_multiplies_between_a_billion_and_a_trillion_times_a_second(measured):
    _, rows = measured
    assert all(1e8 < rate < 2e12 for row in rows for rate in row["flop_per_s"])


def test_every_timed_trial_has_an_mfu_below_its_peak(measured):
    results, _ = measured
    for trial in summarise(Store.open(results)).trials:
        assert trial.work is not None
        assert trial.work.peak_source == "measured"
        assert 0.0 < trial.work.mfu.value < 1.5


@pytest.mark.costly
def test_measuring_again_replaces_what_was_measured(measured):
    results, rows = measured
    steptime("peak", "results", cwd=results.parent)
    assert len(Store.open(results).get("peaks")["peaks"]) == len(rows)


@pytest.mark.costly
@pytest.mark.parametrize("key", ENVIRONMENT_KEYS)
def test_the_interpreters_of_the_study_multiply_first(measured, tmp_path, key):
    """Here one that leaves a trace; on a machine with a GPU it may be the only one with a build for it."""
    results, _ = measured
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\ntouch "{tmp_path}/asked"\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o700)
    copied = Path(shutil.copytree(results, tmp_path / "copied"))
    study = json.loads((copied / "study.json").read_text())
    study["study"][key] = {"pytorch": {"python": str(interpreter)}}
    (copied / "study.json").write_text(json.dumps(study))
    steptime("peak", "copied", cwd=tmp_path)
    assert (tmp_path / "asked").exists()
