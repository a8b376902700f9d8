"""SIGTERM and SIGHUP end a run as Ctrl-C does: nothing is lost, nothing is left, and the next step is named."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from program import PROGRAM, STUDY, start, write_study
from test_study_faults import ENDLESS, wait_for_launches

from living_processes import all_have_left
from steptime.cli import app as program_module
from steptime.interruption import Interrupted, obeyed, shielded, unmasked

QUICK = "equivalence.enabled=false"


def start_in_terminal(folder: Path, study: str) -> tuple[int, int]:
    """Run a study in a terminal of its own; return the process and the terminal's other end."""
    name = write_study(folder, study)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        # Whatever terminal the tests run in: nothing is redrawn on one that is dumb.
        variables = {**os.environ, "TERM": "xterm"}
        os.execve(sys.executable, [*PROGRAM, "run", name, "-o", "results", QUICK], variables)  # noqa: S606 - no shell
    return pid, terminal


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_workers_keeps_the_results_and_says_how_to_resume(tmp_path, number):
    running = start("run", write_study(tmp_path, ENDLESS), "-o", "results", QUICK, cwd=tmp_path)
    wait_for_launches(tmp_path / "results", 1, running)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)

    assert running.returncode == 128 + number
    assert f"interrupted by {number.name}" in said
    assert f"resume with: steptime run small.yaml {QUICK} -o results" in " ".join(said.split())
    assert all_have_left(tmp_path / "results")


@pytest.mark.costly
def test_a_terminal_that_goes_away_ends_the_run_without_a_process_left(tmp_path):
    pid, terminal = start_in_terminal(tmp_path, ENDLESS)
    drained = subprocess.Popen(["cat"], stdin=terminal, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not list((tmp_path / "results").glob("trials/*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    drained.kill()
    drained.wait()
    os.close(terminal)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGHUP
    assert all_have_left(tmp_path / "results")


def test_a_terminal_gets_its_cursor_back(tmp_path):
    pid, terminal = start_in_terminal(tmp_path, STUDY)
    said = b""
    while b"\x1b[?25l" not in said:
        said += os.read(terminal, 4096)
    os.kill(pid, signal.SIGTERM)
    try:
        while chunk := os.read(terminal, 4096):
            said += chunk
    except OSError:  # the other end is closed
        os.close(terminal)
    os.waitpid(pid, 0)

    assert said.rfind(b"\x1b[?25h") > said.rfind(b"\x1b[?25l")


ASKED_AT_IMPORT = """
import os, runpy, signal, sys
class Asking:
    def find_spec(name, *_):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Asking)
sys.argv = ["steptime", "list", "workloads"]
runpy.run_module("steptime", run_name="__main__")
"""


@pytest.mark.sampled
@pytest.mark.parametrize("module", ["shlex", "steptime.cli.verbs", "steptime.interruption", "steptime.cli.console"])
def test_ctrl_c_while_the_program_is_imported_ends_it_without_a_traceback(tmp_path, module):
    script = ASKED_AT_IMPORT.replace("MODULE", repr(module))
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 128 + signal.SIGINT
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_a_removal_is_over(number):
    removed = []
    with pytest.raises(Interrupted), obeyed():  # noqa: PT012 - the order within is what is tested
        with shielded():
            os.kill(os.getpid(), number)
            removed.append("everything")
        removed.append("never")

    assert removed == ["everything"]


def test_a_second_signal_does_not_cut_short_what_the_first_began():
    with pytest.raises(Interrupted, match="SIGTERM"), obeyed():  # noqa: PT012 - the order within is what is tested
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)


class Ending:
    """An object at whose end a signal comes, where Python drops what is raised."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)


def test_a_signal_that_comes_at_the_end_of_an_object_is_not_lost():
    with pytest.raises(Interrupted, match="SIGTERM"), obeyed():  # noqa: PT012 - the order within is what is tested
        Ending()
        time.sleep(60)


def test_an_interruption_that_a_library_drops_is_raised_again():
    with pytest.raises(Interrupted, match="SIGTERM"), obeyed():  # noqa: PT012 - the order within is what is tested
        with contextlib.suppress(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)


def test_what_cleans_up_after_an_interruption_is_not_interrupted_by_the_same_one():
    cleaned = []
    with pytest.raises(Interrupted, match="SIGTERM"), obeyed():  # noqa: PT012 - the order within is what is tested
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            time.sleep(0.1)
            cleaned.append("everything")

    assert cleaned == ["everything"]


def test_what_cleans_up_after_a_hidden_interruption_is_not_interrupted_by_the_same_one():
    cleaned = []
    with pytest.raises(Interrupted, match="SIGTERM"), obeyed():  # noqa: PT012 - the order within is what is tested
        try:
            with unmasked():
                with contextlib.suppress(Interrupted):
                    os.kill(os.getpid(), signal.SIGTERM)
                raise ValueError
        finally:
            time.sleep(0.1)
            cleaned.append("everything")

    assert cleaned == ["everything"]


def test_an_interruption_that_was_dropped_last_ends_nothing_afterwards():
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        with obeyed(), contextlib.suppress(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert received == []


def test_a_signal_of_which_a_library_makes_another_error_is_an_interruption(monkeypatch, capsys):
    def library(_arguments: object, *, standalone_mode: bool, obj: float | None) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Interrupted:
            raise ValueError from None

    monkeypatch.setattr(program_module, "app", library)

    assert program_module.run_program(["list"]) == 128 + signal.SIGTERM
    assert "to begin again: steptime list" in capsys.readouterr().err


def test_a_signal_that_nohup_has_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with obeyed():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_those_of_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with obeyed():
        pass

    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
