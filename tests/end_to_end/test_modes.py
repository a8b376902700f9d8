"""What the program leaves for others on the machine to open, under the umask of a shell that lets a group write."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
workloads: [{name: lenet5, batch_per_worker: 4}]
frameworks: reference
workers: 1
device: cpu
launches: {min: 1, max: 1}
seconds_per_launch: 0.1
steps: {warmup: 3, min: 5, max: 10}
equivalence: {enabled: false}
"""


@pytest.fixture
def run(tmp_path: Path):
    """Return a function that runs the study under umask 002 and returns the results folder."""

    def under_a_wide_umask() -> Path:
        study, results = tmp_path / "study.yaml", tmp_path / "results"
        study.write_text(STUDY)
        command = [sys.executable, "-m", "steptime", "run", study, "-o", results]
        done = subprocess.run(command, capture_output=True, text=True, check=False, umask=0o002)
        assert done.returncode == 0, done.stdout + done.stderr
        return results

    return under_a_wide_umask


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_only_their_owner_opens_new_results_and_nobody_else_writes_below_them(run) -> None:
    results = run()

    assert _mode(results) == 0o700
    assert not [path for path in results.rglob("*") if _mode(path) & 0o022]


@pytest.mark.costly
def test_the_mode_that_a_user_gave_to_results_stays(run, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results").chmod(0o755)
    run()

    assert _mode(run()) == 0o755
