"""Results folders that another user owns, may write to, or has filled: launches are refused, and reading warns.

Root tests as another user with real owners, groups and access lists.
"""

import grp
import json
import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from program import DIGITS_STUDY, STUDY, steptime, write_study

from steptime.errors import StoreError
from steptime.foreign_writers import foreign_hand_on, require_folder_for_launches, trusted_users
from steptime.results.store import Store
from steptime.runner.plan import plan_study

NOBODY = 65534
LAUNCHING = {
    "run": ["run", "small.yaml", "-o", "results"],
    "net": ["net", "star", "--launches", "1", "--sizes", "1KiB,4KiB", "--repeats", "5", "-o", "results"],
    "submit": ["submit", "small.yaml", "-o", "results"],
    "peak": ["peak", "results"],
}
READING = {
    "report": ["report", "results"],
    "status": ["status", "results"],
    "export": ["export", "results", "-o", "tables"],
    "fit": ["fit", "results", "-o", "small.profile.json"],
}
TRAINING_STUDY = DIGITS_STUDY + "loaders: native\nbatch_per_worker: 128\ntrain: {epochs: 1, seeds: 1}\n"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study and its results."""
    folder = tmp_path_factory.mktemp("measured")
    steptime("run", write_study(folder, STUDY + "equivalence: {enabled: false}\n"), "-o", "results", cwd=folder)
    return folder


@pytest.fixture
def folder(measured: Path) -> Iterator[Path]:
    """A copy of it below /tmp, into which other users may look."""
    with tempfile.TemporaryDirectory(dir="/tmp") as below:
        Path(below).chmod(0o755)
        yield shutil.copytree(measured, Path(below, "copy"))


def planned(folder: Path, text: str = TRAINING_STUDY) -> tuple[Path, str]:
    """Make a results folder that holds the trial of a study and nothing else; return it, and the id of the trial."""
    plan = plan_study(str(folder / write_study(folder, text)), [], folder / "results", None)
    (trial,) = plan.expansion.trials
    store = Store.create(folder / "results", study_text=text, study_json=plan.study.model_dump(mode="json"))
    store.add_trial(trial)
    return store.path, trial.id


def given_away(results: Path) -> str:
    for path in [results, *results.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    return "(owner nobody, mode 0700) belongs to another user than root"


def everyone_may_write(results: Path) -> str:
    (results / "trials").chmod(0o777)
    return "trials (owner root, mode 0777) may be written by everyone"


def sticky(results: Path) -> str:
    results.chmod(0o1777)
    return "(owner root, mode 1777) may be written by everyone"


def a_group_may_write(results: Path) -> str:
    os.chown(results, -1, grp.getgrnam("users").gr_gid)
    results.chmod(0o770)
    return "(owner root, mode 0770) may be written by the group users"


def a_listed_user_may_write(results: Path) -> str:
    """As ``setfacl -m u:nobody:rwx`` does; the group itself has no right to write."""
    none = 0xFFFFFFFF
    entries = [(1, 7, none), (2, 7, NOBODY), (4, 5, none), (16, 7, none), (32, 0, none)]
    try:
        os.setxattr(
            results,
            "system.posix_acl_access",
            struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries),
        )
    except OSError as error:
        pytest.skip(f"no access lists in {results}: {error.strerror}")
    return "may be written by the user nobody"


def a_file_may_be_written(results: Path) -> str:
    job = next(results.glob("trials/*/launch-0/job.json"))
    job.chmod(0o666)
    return "launch-0/job.json (owner root, mode 0666) may be written by everyone"


def the_folder_above_is_anothers(results: Path) -> str:
    os.chown(results.parent, NOBODY, NOBODY)
    return "copy (owner nobody, mode 0700) belongs to another user than root, who could put another folder in the place"


FOREIGN: list[Callable[[Path], str]] = [
    given_away,
    everyone_may_write,
    sticky,
    a_group_may_write,
    a_listed_user_may_write,
    a_file_may_be_written,
    the_folder_above_is_anothers,
]


def said(output: str) -> str:
    return " ".join(output.split())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.sampled("make")
@as_root
@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
@pytest.mark.parametrize("verb", LAUNCHING)
def test_a_verb_that_launches_refuses_a_folder_of_others_with_owner_and_mode(verb, make, folder):
    expected = make(folder / "results")
    before = contents(folder)

    done = steptime(*LAUNCHING[verb], cwd=folder, check=2)

    assert expected in said(done.stderr)
    assert "could put" in said(done.stderr)
    assert "as root" in said(done.stderr)
    assert contents(folder) == before


@pytest.mark.sampled("make")
@as_root
@pytest.mark.parametrize("make", [given_away, everyone_may_write], ids=lambda make: make.__name__)
@pytest.mark.parametrize("verb", READING)
def test_a_verb_that_reads_warns_and_reads(verb, make, folder):
    expected = make(folder / "results")

    done = steptime(*READING[verb], cwd=folder)

    assert expected in said(done.stderr)
    assert "could have changed these results" in said(done.stderr)


@pytest.mark.parametrize("verb", READING)
def test_a_verb_that_reads_says_nothing_of_a_folder_of_ones_own(verb, folder):
    assert "could have changed" not in steptime(*READING[verb], cwd=folder).stderr


def test_a_folder_below_tmp_is_used(folder):
    """In it others make new folders, and rename none that is there."""
    require_folder_for_launches(folder / "results")
    require_folder_for_launches(Path("/tmp/no-folder-yet/results"))  # noqa: S108


@as_root
@pytest.mark.parametrize("links_owner", [0, NOBODY])
def test_a_link_of_another_user_on_the_way_is_refused(links_owner, folder):
    link = folder.parent / "link"
    link.symlink_to(folder)
    os.chown(link, links_owner, links_owner, follow_symlinks=False)

    if links_owner:
        with pytest.raises(StoreError, match=r"link \(owner nobody"):
            require_folder_for_launches(link / "results")
    else:
        require_folder_for_launches(link / "results")


@as_root
def test_the_folders_that_a_link_leads_through_count_as_well(folder):
    loose = folder.parent / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    (loose / "inner").symlink_to(folder)
    (folder.parent / "outer").symlink_to("loose/inner")

    with pytest.raises(StoreError, match=r"loose \(owner root, mode 0777\) may be written by everyone"):
        require_folder_for_launches(folder.parent / "outer" / "results")


@as_root
def test_another_user_is_no_stranger_in_a_folder_of_its_own(folder):
    """And root, who may change everything anyway, is nobody's stranger."""
    given_away(folder / "results")
    (folder / "results").parent.chmod(0o755)
    trusted_users.cache_clear()
    os.seteuid(NOBODY)
    try:
        require_folder_for_launches(folder / "results")
    finally:
        os.seteuid(0)
        trusted_users.cache_clear()


@as_root
def test_what_a_reader_may_not_open_is_no_hindrance(folder):
    """Run folders stay closed where results are shared."""
    results = folder / "results"
    for path in [results, *results.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IRGRP | stat.S_IROTH)
    for path in (results, results / "trials", *results.glob("trials/*")):
        path.chmod(0o755)

    assert foreign_hand_on(results) is None


DEPTHS = ["equivalence", "trials/{}/launch-0/steptime/worker/main.py", "trials/{}/checkpoint-0/epochs.json.partial"]


@pytest.mark.parametrize("name", DEPTHS)
def test_a_link_at_any_depth_is_refused_and_nothing_is_written_through_it(name, tmp_path):
    results, trial = planned(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("the user's own")
    link = results / name.format(trial)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)

    done = steptime("run", "small.yaml", "-o", "results", cwd=tmp_path, check=2)

    assert f"{name.format(trial)} is a symbolic link" in said(done.stderr).replace(" ", "").replace(
        "isasymboliclink", " is a symbolic link"
    )
    assert victim.read_text() == "the user's own"


def test_a_second_name_in_a_checkpoint_is_not_written_through(tmp_path):
    results, trial = planned(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("the user's own")
    for name in ("epochs.json", "epochs.json.partial", "state-0-0.npz.partial"):
        second = results / "trials" / trial / "checkpoint-0" / name
        second.parent.mkdir(parents=True, exist_ok=True)
        second.hardlink_to(victim)

    refused = steptime("run", "small.yaml", "-o", "results", cwd=tmp_path, check=2)

    assert "is a second name of another file" in said(refused.stderr)
    assert victim.read_text() == "the user's own"


@pytest.mark.sampled
@pytest.mark.parametrize("key", ["engine", "scaler"])
def test_a_training_whose_checkpoint_was_pickled_begins_again_and_says_so(key, tmp_path):
    results, trial = planned(tmp_path)
    checkpoint = results / "trials" / trial / "checkpoint-0"
    checkpoint.mkdir()
    times = {"trained_s": 1.0, "evaluated_s": 1.0, "saved_s": 0.0}
    counts = {"epoch": 0, "samples": 8, "counted": 8, "correct": 4}
    losses = {"loss_sum": 8.0, "training_loss": 1.0, "learning_rate": 0.01, "staleness": None}
    (checkpoint / "epochs.json").write_text(json.dumps([[times | counts | losses]]))
    np.savez(checkpoint / "state-0-0.npz", **{key: np.zeros(3, np.uint8)})

    done = steptime("run", "small.yaml", "-o", "results", cwd=tmp_path)

    assert f"state-0-0.npz holds '{key}' as an older steptime pickled it" in said(done.stderr)
    assert "begins again" in said(done.stderr)
    (line,) = (results / "trials" / trial / "training.jsonl").read_text().splitlines()
    assert (json.loads(line)["status"], json.loads(line)["resumed_at"]) == ("ok", 0)
