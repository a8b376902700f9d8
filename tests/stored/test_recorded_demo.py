"""What ``steptime demo`` shows: a recording that today's program reads whole, and what it fits to it."""

import re

import pytest
from golden import rounded
from stored_studies import output_of

from steptime.analysis.summary import summarise
from steptime.cli.demo import STUDY, recorded_files
from steptime.results.store import Store

MAKE = "make it anew: .venv/bin/python benchmarks/demo/record.py FOLDER"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("demo")
    for name, data in recorded_files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root / STUDY


@pytest.fixture(scope="module")
def store(folder):
    return Store.open(folder)


def test_the_recording_is_read_whole(store):
    summarise(store)

    assert store.problems == []


def test_every_trial_of_the_recording_is_ranked_with_five_launches_and_a_breakdown(store):
    summary = summarise(store)

    assert {each.trial for each in summary.ranking} == {each.id for each in summary.trials}
    assert {len(store.launches(each.id)) for each in summary.trials} == {5}
    assert all(each.phases for each in summary.trials)


def test_the_first_screen_of_the_recording_settles_what_it_shows(folder):
    text = output_of("report", str(folder), columns=140)

    assert "inconclusive" not in text
    assert "not repeated" not in text
    assert not re.search(r"-\d[\d.]* (?:%|ms|µs)", text)


def test_the_recording_names_no_folder_of_the_machine_that_made_it():
    whole = b"".join(recorded_files().values())

    assert not re.search(rb'"/(?!home/user|steptime|dev|proc|sys|usr|bin|etc)\w+/', whole)


def test_the_profile_of_the_recording_is_what_is_fitted_to_it_today(folder):
    output_of("fit", str(folder), "-o", str(folder.parent / "today.json"))

    shipped = recorded_files()[f"{STUDY}.profile.json"].decode()
    assert rounded((folder.parent / "today.json").read_text()) == rounded(shipped), MAKE
