"""``steptime net`` as a user types it, over the back end that needs no framework."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from program import start, steptime

from steptime.cli.net import net
from steptime.errors import UsageError

QUICK = ("net", "star", "--sizes", "1KiB,256KiB,4MiB", "--repeats", "10", "-o", "found")


def records(folder: Path) -> list[dict]:
    """The launches that a results folder holds."""
    return [json.loads(line) for line in (folder / "net.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A folder in which the star was measured into ``found``, with two and three workers."""
    folder = tmp_path_factory.mktemp("net")
    steptime(*QUICK, "--workers", "2,3", "--launches", "2", cwd=folder)
    return folder


def test_json_has_a_row_for_every_number_of_workers_with_bounds_that_hold_it(measured):
    # Nothing is left to measure: the same command reads what is there.
    data = json.loads(steptime(*QUICK, "--workers", "2,3", "--launches", "2", "--json", cwd=measured).stdout)
    assert [(row["back_end"], row["workers"], row["status"]) for row in data["net"]] == [
        ("star", 2, "ok"),
        ("star", 3, "ok"),
    ]
    for row in data["net"]:
        assert (row["launches"], row["wrong"], row["interval_over"]) == (2, 0, "launches")
        assert row["checks"] == 2 * row["workers"] * 3 * (1 + 5)
        for number in (row["alpha_s"], *(size["time_s"] for size in row["sizes"])):
            assert 0 < number["low"] <= number["value"] <= number["high"]
        assert [size["bytes"] for size in row["sizes"]] == [1024, 262144, 4194304]
        assert set(row["fit"]) >= {"start_s", "latencies_per_step", "bandwidth_bytes_per_s", "worst_error"}
        assert row["fit"]["start_s"]["value"] == pytest.approx(row["sizes"][0]["time_s"]["value"], rel=0.9)


def test_running_again_repeats_nothing_and_more_launches_are_added(measured, tmp_path):
    shutil.copytree(measured / "found", tmp_path / "found")
    before = records(measured / "found")
    steptime(*QUICK, "--workers", "2", "--launches", "3", cwd=tmp_path)
    after = records(tmp_path / "found")
    assert after[: len(before)] == before
    assert [(each["setting"]["workers"], each["launch"]) for each in after[len(before) :]] == [(2, 2)]


@pytest.mark.parametrize("columns", ["60", "100", "200"])
def test_the_table_fits_the_terminal(measured, columns):
    text = steptime(*QUICK, "--workers", "2,3", "--launches", "2", cwd=measured, COLUMNS=columns).stdout
    assert all(len(line) <= int(columns) for line in text.splitlines())
    assert "star" in text
    assert "bit/s" in text


def test_a_launch_keeps_what_else_the_machine_did(measured):
    for launch in records(measured / "found"):
        assert launch["noise"]["wall_s"] > 0
        assert launch["environment"]["packages"]["numpy"]
        assert len(launch["commands"]) == launch["setting"]["workers"]


def test_results_of_a_study_and_of_messages_share_a_folder(measured):
    data = json.loads(steptime("report", "found", "--json", cwd=measured).stdout)
    assert data["trials"] == []
    assert [row["workers"] for row in data["net"]] == [2, 3]
    assert "Messages on this host" in steptime("report", "found", cwd=measured).stdout


def test_a_dry_run_starts_nothing(tmp_path):
    plan = json.loads(steptime(*QUICK, "--dry-run", "--json", cwd=tmp_path).stdout)
    assert [each["back_end"] for each in plan["settings"]] == ["star"]
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "latex"])
def test_a_plan_has_its_sizes_and_its_folder_or_table_in_every_form(form, capfd, tmp_path):
    net(back_ends=["star"], sizes="1KiB,256KiB", dry_run=True, output=tmp_path / "found", form=form)
    shown = capfd.readouterr().out
    assert "1 KiB, 256 KiB" in shown
    assert not (tmp_path / "found").exists()


@pytest.mark.costly
def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(tmp_path):
    process = start(*QUICK, "--launches", "500", cwd=tmp_path)
    found = tmp_path / "found" / "net.jsonl"
    deadline = time.monotonic() + 60
    while not (found.exists() and found.read_bytes().count(b"\n") > 1) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "resume with: steptime net star" in said
    assert records(tmp_path / "found")


def test_a_budget_leaves_the_rest_and_says_so(tmp_path):
    said = steptime(*QUICK, "--launches", "500", "--budget", "2s", cwd=tmp_path, check=4).stderr
    assert "the budget left out" in said
    assert 1 <= len(records(tmp_path / "found")) < 500


WRONG = {
    "back end": ({"back_ends": ["glo"]}, ["did you mean 'gloo'"]),
    "operation": ({"operations": "alreduce"}, ["did you mean 'allreduce'"]),
    "launcher": ({"launcher": "emulate"}, ["did you mean 'emulated'"]),
    "several": ({"back_ends": ["glo"], "workers": "2,x", "sizes": "1qB"}, ["'x'", "'1qB'", "'glo'"]),
    "one size": ({"sizes": "1KiB"}, ["two sizes"]),
    "odd size": ({"sizes": "1KiB,1025B"}, ["1025 bytes"]),
    "one worker": ({"workers": "1"}, ["two are the fewest"]),
    "nobody": ({"workers": ","}, ["--workers"]),
    "bandwidth without links": ({"bandwidth": "1Gbit/s"}, ["--bandwidth needs --launcher emulated"]),
    "hosts for this host alone": ({"hosts": "n0,n1", "launcher": "local"}, ["--hosts n0,n1 means nothing to"]),
    "a host that is an option": ({"hosts": "n0,-oProxyCommand=x"}, ["'-oProxyCommand=x' is not a name of a host"]),
    "hosts that nobody names": ({"launcher": "ssh"}, ["--launcher ssh runs on hosts", "--hosts n0,n1"]),
    "too few hosts": ({"hosts": "n0"}, ["star, 2 workers: they need two hosts at least; there are 1"]),
    "foreign launcher": ({"launcher": "mpi"}, ["started by the launcher local"]),
    "no device": ({"back_ends": ["nccl"], "workers": "999"}, ["CUDA devices"]),
    "operation that it lacks": ({"operations": "incast"}, ["has no operation incast", "allreduce"]),
    "budget": ({"budget": "8 minuets"}, ["8 minuets"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_answered_with_what_would_be_right(case):
    arguments, answers = WRONG[case]
    with pytest.raises(UsageError) as raised:
        net(**{"back_ends": ["star"], "dry_run": True, **arguments})
    assert all(answer in str(raised.value) for answer in answers), raised.value


def test_all_mistakes_are_said_at_once_and_without_a_traceback(tmp_path):
    said = steptime("net", "glo", "--workers", "2,x", "--sizes", "1qB", cwd=tmp_path, check=2).stderr
    assert said.startswith("3 errors:")
    assert "Traceback" not in said
