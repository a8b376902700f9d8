"""The exit codes of ``steptime run``, and what it says at its end."""

from pathlib import Path

import pytest

from steptime.cli import run as verb
from steptime.runner.equivalence import distance
from steptime.runner.study_run import StudyRun, TrialCounts

STUDY = """\
version: 1
name: small
workloads: [{name: lenet5, batch_per_worker: 4}]
frameworks: [reference]
workers: [1]
loaders: [synthetic]
launches: {min: 1, max: 1}
seconds_per_launch: 0.1
steps: {warmup: 1, min: 1, max: 2}
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A study file in an empty current folder, with an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    Path("small.yaml").write_text(STUDY)
    return "small.yaml"


def exit_code(study: str) -> int:
    """Run the verb as ``steptime run STUDY`` does, and return its exit code."""
    try:
        verb.run(study, None, Path("results"), None, dry_run=False, as_json=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_framework_that_does_not_pass_the_equivalence_check_ends_with_exit_code_1(study, monkeypatch, capfd):
    # Less than no distance is allowed, so that no framework is near enough to the reference.
    monkeypatch.setattr(distance.Round, "allowed_loss", lambda _self, _precision: -1.0)

    assert exit_code(study) == 1
    said = capfd.readouterr().out
    assert "equivalence check: as trained: worker 0: the first loss is" in said
    assert not list(Path("results").glob("trials/*/records.jsonl"))


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        (TrialCounts(ok=2, failed=0, not_equivalent=0, not_run=0), 0),
        (TrialCounts(ok=1, failed=0, not_equivalent=1, not_run=0), 1),
        (TrialCounts(ok=1, failed=1, not_equivalent=0, not_run=0), 3),
        (TrialCounts(ok=0, failed=1, not_equivalent=1, not_run=0), 3),
        (TrialCounts(ok=1, failed=0, not_equivalent=0, not_run=1), 0),
    ],
)
def test_the_exit_code_says_how_the_trials_ended(study, monkeypatch, counts, code):
    monkeypatch.setattr(StudyRun, "run", lambda _self: counts)
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)

    assert exit_code(study) == code


def test_trials_that_the_budget_left_out_are_counted_with_the_command_that_goes_on(study, monkeypatch, capfd):
    monkeypatch.setattr(StudyRun, "run", lambda _self: TrialCounts(ok=1, failed=0, not_equivalent=0, not_run=3))
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)
    exit_code(study)

    assert "the budget left out 3 trials; to go on: steptime run small.yaml -o results" in capfd.readouterr().err
