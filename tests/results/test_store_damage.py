"""What is left of a results folder after everything that can happen to it."""

import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

import pytest
from simulated import a_launch, a_store, a_trial

from steptime.analysis.trial_progress import progress_of_trials
from steptime.errors import StoreError
from steptime.interruption import Interrupted, obeyed
from steptime.plain_file import replacement
from steptime.results.store import Store

WRITER = """
import sys
from pathlib import Path
from shutil import which
sys.path.insert(0, sys.argv[2])
from simulated import a_launch, a_trial
from steptime.results.store import Store
store, trial = Store.open(Path(sys.argv[1])), a_trial()
with store.lock():
    number = len(store.launches(trial.id))
    print("ready", flush=True)
    while True:
        store.append(a_launch(trial, number, [0.1] * 20_000))
        number += 1
        print(number, flush=True)
"""
HERE = str(Path(__file__).parent)


@pytest.fixture
def store(tmp_path):
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    return store


def records_of(store):
    return store.path / "trials" / a_trial().id / "records.jsonl"


def writer(store):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), HERE], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_killed_writer_loses_the_launch_in_flight_at_most(store):
    dice, acknowledged = random.Random(7), 0
    for _ in range(5):
        process = writer(store)
        first = process.stdout.readline()  # however long a busy machine takes to start it
        time.sleep(dice.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        said, _ = process.communicate()
        acknowledged = int((first + said).split()[-1])
        launches = Store.open(store.path).launches(a_trial().id)
        assert acknowledged <= len(launches) <= acknowledged + 1
        assert [launch.launch for launch in launches] == list(range(len(launches)))
        assert all(len(launch.workers[0].ends_s) == 20_000 for launch in launches)
        acknowledged = len(launches)
    assert acknowledged > 0
    assert store.problems == []


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_a_line_changes_what_is_read(store, bit):
    store.append(a_launch(a_trial(), 0))
    whole, (launch,) = records_of(store).read_bytes(), store.launches(a_trial().id)
    for place in range(0, len(whole) - 1, 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        if damaged[place] == ord("\n"):
            continue
        records_of(store).write_bytes(bytes(damaged))
        found = Store.open(store.path)
        assert found.launches(a_trial().id) in ([], [launch])
        assert found.launches(a_trial().id) or [each.reason for each in found.set_aside] == ["damaged"]


def test_a_changed_number_is_named_with_file_and_line(store):
    for number in range(2):
        store.append(a_launch(a_trial(), number, [0.1] * 20))
    lines = records_of(store).read_text().splitlines(keepends=True)
    records_of(store).write_text(lines[0] + lines[1].replace('"wall_s":', '"wall_s":9'))

    assert len(store.launches(a_trial().id)) == 1
    (problem,) = store.problems
    assert "records.jsonl, line 2 is damaged" in problem
    assert "its checksum does not fit" in problem


def test_a_line_without_the_checksum_that_its_schema_has_is_set_aside(store):
    store.append(a_launch(a_trial(), 0))
    line = json.loads(records_of(store).read_text())
    del line["checksum"]
    records_of(store).write_text(json.dumps(line) + "\n")

    assert store.launches(a_trial().id) == []
    assert "its checksum is missing" in store.problems[0]


def test_a_line_that_another_program_wrote_anew_with_spaces_still_counts(store):
    store.append(a_launch(a_trial(), 0, [0.1, 0.2]))
    records_of(store).write_text(json.dumps(json.loads(records_of(store).read_text())) + "\n")

    assert len(store.launches(a_trial().id)) == 1
    assert store.unverified_of(a_trial().id) == 0


def test_lines_of_versions_without_checksums_are_read_and_counted_as_unverified(store):
    lines = [json.dumps(a_launch(a_trial(), number).to_json()) + "\n" for number in range(3)]
    records_of(store).write_text("".join(lines))
    store.append(a_launch(a_trial(), 3))

    (row,) = progress_of_trials(store)
    assert (row["ok"], row["unverified"], row["set_aside"]) == (4, 3, [])


def test_a_half_written_last_line_is_ignored_by_readers_and_cut_off_by_the_next_writer(store):
    store.append(a_launch(a_trial(), 0))
    whole = records_of(store).read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 1):
        records_of(store).write_bytes(whole + whole[:cut])
        assert len(store.launches(a_trial().id)) == 1
        store.append(a_launch(a_trial(), 1))
        assert [launch.launch for launch in store.launches(a_trial().id)] == [0, 1]
    assert store.problems == []


def test_a_long_half_written_line_is_cut_off_whole(store):
    store.append(a_launch(a_trial(), 0))
    with records_of(store).open("ab") as file:
        file.write(b"x" * 200_000)
    store.append(a_launch(a_trial(), 1))
    assert records_of(store).read_bytes().count(b"x") < 200_000
    assert len(store.launches(a_trial().id)) == 2


def test_a_file_that_holds_half_a_line_only_starts_anew(store):
    records_of(store).write_bytes(b'{"schema": 1')
    store.append(a_launch(a_trial(), 0))
    assert len(store.launches(a_trial().id)) == 1


@pytest.mark.parametrize("damage", [b"\0" * 50, b'{"schema":1,"kind":"launch"}', b"[1]", b"{broken", b"\xff\xfe"])
def test_a_damaged_line_is_skipped_and_reported_with_its_place(store, damage):
    store.append(a_launch(a_trial(), 0))
    with records_of(store).open("ab") as file:
        file.write(damage + b"\n")
    store.append(a_launch(a_trial(), 1))
    assert [launch.launch for launch in store.launches(a_trial().id)] == [0, 1]
    (problem,) = store.problems
    assert f"trials/{a_trial().id}/records.jsonl, line 2" in problem


def test_a_damaged_study_says_where_the_records_are(store):
    (store.path / "study.json").write_text("{")
    with pytest.raises(StoreError, match=r"study\.json is damaged"):
        Store.open(store.path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"workers": 1', '"workers": 2', "changed by hand"),
        ('"workers"', '"worker"', "is damaged"),
        ("{", "", "damaged"),
    ],
)
def test_a_configuration_that_is_not_its_folders_is_refused(store, old, new, message):
    """Its records would be shown under the wrong name."""
    path = records_of(store).with_name("trial.json")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(StoreError, match=message):
        Store.open(store.path).trials()


def test_a_second_run_on_the_same_folder_is_refused_with_the_process_that_holds_it(store):
    process = writer(store)
    try:
        with pytest.raises(StoreError, match=f"process {process.pid} "), Store.open(store.path).lock():
            pass
        with pytest.raises(StoreError, match="in use"):
            store.append(a_launch(a_trial()))
    finally:
        process.kill()
        process.communicate()


def test_a_folder_can_be_read_while_another_process_writes_it(store):
    process = writer(store)
    try:
        process.stdout.readline()
        assert Store.open(store.path).launches(a_trial().id)
    finally:
        process.kill()
        process.communicate()


def test_the_lock_is_free_when_its_holder_was_killed(store):
    process = writer(store)
    process.kill()
    process.communicate()
    with store.lock():
        assert str(os.getpid()) in (store.path / "run.lock").read_text()


def test_a_file_that_a_killed_writer_left_is_removed_by_the_next_one(store):
    program = (
        "import os, signal, sys; from pathlib import Path; from steptime.plain_file import replacement\n"
        "with replacement(Path(sys.argv[1])) as file: os.kill(os.getpid(), signal.SIGKILL)"
    )
    trial = store.path / "trials" / "one"
    subprocess.run([sys.executable, "-c", program, str(trial / "trial.json")], check=False)
    (left,) = trial.iterdir()
    with replacement(trial / "skips.json"), store.lock():
        (running,) = trial.iterdir()
    assert running != left


def test_the_lock_may_be_entered_again_by_its_holder_and_is_held_to_the_end(store):
    with store.lock():
        with store.lock():
            pass
        with pytest.raises(StoreError, match="in use"), Store.open(store.path).lock():
            pass


def test_a_full_disk_leaves_whole_lines_and_says_what_is_safe(tmp_path):
    """On a real file system of half a megabyte where the user may mount one."""
    mount, umount = which("mount"), which("umount")
    disk = tmp_path / "disk"
    disk.mkdir()
    if mount is None or umount is None:
        pytest.skip("no mount command; the next test limits the file size instead")
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small file system; the next test limits the file size instead")
    try:
        store, trial = a_store(disk / "results"), a_trial()
        store.add_trial(trial)
        kept = append_until_refused(store, trial)
        assert [launch.launch for launch in store.launches(trial.id)] == list(range(kept))
        assert records_of(store).read_bytes().endswith(b"\n")
    finally:
        subprocess.run([umount, str(disk)], check=True)


def test_a_file_that_may_not_grow_leaves_whole_lines_and_says_what_is_safe(store):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
    try:
        kept = append_until_refused(store, a_trial())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert len(store.launches(a_trial().id)) == kept
    store.append(a_launch(a_trial(), kept))
    assert len(store.launches(a_trial().id)) == kept + 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_disk_is_awaited_loses_no_launch(store, monkeypatch, number):
    sync = os.fsync

    def interrupted(descriptor):
        os.kill(os.getpid(), number)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(Interrupted), obeyed():
        store.append(a_launch(a_trial(), 0))
    assert len(store.launches(a_trial().id)) == 1


def test_a_small_file_that_cannot_be_written_stays_as_it_was(store):
    store.put("notes", {"before": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(StoreError, match="the disk is full"):
            store.put("notes", {"after": "x" * 1000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert store.get("notes") == {"before": 1}
    assert not list(store.path.glob("*.partial"))


def append_until_refused(store, trial):
    """Append launches of about 100 kB until the disk is full; return how many were taken."""
    for number in range(20):
        try:
            store.append(a_launch(trial, number, [0.123456789] * 6_000))
        except StoreError as error:
            assert "the disk is full" in str(error)  # noqa: PT017 - the launches before must succeed
            assert "Everything recorded before is safe" in str(error)  # noqa: PT017
            assert error.__cause__.errno in (errno.ENOSPC, errno.EFBIG)  # noqa: PT017
            assert number > 0
            return number
    return pytest.fail("the disk never became full")
