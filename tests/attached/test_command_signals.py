"""A signal does to an attached command what it does to the command alone, whoever else gets it and whenever it comes.

Nothing here waits for a time: a script says where it is, and what it was sent.
"""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from program import PROGRAM, process

from living_processes import has_ended, wait_until
from steptime.cli import attach as verb
from steptime.cli.app import run_program
from steptime.runner import attached_run
from steptime.runner.attached_run import PreparedCommand

SAYING = """
import os, signal, sys, time
def said(number, frame):
    with open("got", "a") as got:
        got.write(f"{number}\\n")
    if number == LAST:
        sys.exit(9)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, said)
open("ready", "w").close()
time.sleep(120)
"""
FIRST = signal.SIGINT
STOPPED = psutil.STATUS_STOPPED


def start(folder: Path, script: str, *verb: str, **more) -> subprocess.Popen[bytes]:
    """Start a script below a verb in a group of its own, and return once it has begun."""
    (folder / "script.py").write_text(script)
    command = [*PROGRAM, *(verb or ("attach", "-o", "results", "--")), sys.executable, "script.py"]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    running = subprocess.Popen(command, cwd=folder, process_group=0, **streams, **more)
    assert wait_until((folder / "ready").exists, 90), running.poll()
    return running


def got(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(line) for line in (folder / "got").read_text().split()]
    return []


def kept(folder: Path) -> dict:
    return json.loads((folder / "results" / "attached.json").read_text())


@pytest.mark.parametrize("to_group", [True, False])
def test_a_signal_to_one_or_all_of_a_group_reaches_the_command_once(tmp_path, to_group):
    running = start(tmp_path, SAYING.replace("LAST", "signal.SIGTERM"))
    (os.killpg if to_group else os.kill)(running.pid, FIRST)
    assert wait_until(lambda: got(tmp_path), 60)
    os.kill(running.pid, signal.SIGTERM)  # which steptime takes after the first
    running.communicate(timeout=60)

    assert got(tmp_path) == [FIRST, signal.SIGTERM]
    assert running.returncode == 9
    assert kept(tmp_path)["exit_code"] == 9


def test_a_command_that_sends_a_signal_to_its_own_group_gets_it_once(tmp_path):
    script = SAYING.replace("LAST", "signal.SIGTERM")
    running = start(tmp_path, script.replace('open("ready', 'os.killpg(0, signal.SIGUSR1)\nopen("ready'))
    os.kill(running.pid, signal.SIGTERM)
    running.communicate(timeout=60)

    assert got(tmp_path) == [signal.SIGUSR1, signal.SIGTERM]


def test_ctrl_c_ends_an_attached_script_by_the_signal_as_it_ends_the_script_alone(tmp_path):
    running = start(tmp_path, "open('ready', 'w').close(); import time; time.sleep(120)")
    os.killpg(running.pid, signal.SIGINT)
    running.communicate(timeout=60)

    assert running.returncode == -signal.SIGINT


@pytest.mark.parametrize("to_group", [True, False])
def test_a_command_that_is_stopped_and_goes_on_takes_steptime_with_it(tmp_path, to_group):
    running = start(tmp_path, SAYING.replace("LAST", "signal.SIGTERM"))
    send, own = os.killpg if to_group else os.kill, psutil.Process(running.pid)
    (command,) = [each for each in own.children() if "script.py" in each.cmdline()]
    for _ in range(2):
        send(running.pid, signal.SIGTSTP)
        assert wait_until(lambda: {own.status(), command.status()} == {STOPPED}, 60)
        send(running.pid, signal.SIGCONT)
        assert wait_until(lambda: STOPPED not in {own.status(), command.status()}, 60)
    os.kill(running.pid, signal.SIGTERM)
    running.communicate(timeout=60)

    assert running.returncode == 9


def test_a_terminal_that_is_closed_reaches_a_command_whose_steptime_leads_the_session(tmp_path):
    """The kernel sends SIGHUP to the leader of the session alone, until that has ended."""
    (tmp_path / "script.py").write_text(SAYING.replace("LAST", "signal.SIGHUP"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = [*PROGRAM, "attach", "-o", "results", "--", sys.executable, "script.py"]
        os.execv(sys.executable, command)  # noqa: S606 - no shell
    assert wait_until((tmp_path / "ready").exists, 90)
    os.close(terminal)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert got(tmp_path) == [signal.SIGHUP]
    assert kept(tmp_path)["exit_code"] == 9


def test_nothing_stays_of_the_witness_of_signals(tmp_path):
    running = start(tmp_path, SAYING.replace("LAST", "signal.SIGTERM"))
    below = psutil.Process(running.pid).children(recursive=True)
    (command,) = [each for each in below if "script.py" in each.cmdline()]
    running.kill()
    command.kill()
    running.communicate()

    assert len(below) == 2
    assert all(has_ended(each.pid, 60) for each in below)


def ask(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def attached(*words: str) -> int:
    return run_program(["attach", "-o", "results", "--", *words])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_after_the_end_of_a_command_ends_the_answer_alone(tmp_path, monkeypatch, capsys, number):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verb, "_answer", lambda *_, **__: ask(number))

    assert attached("sh", "-c", "exit 5") == 5
    assert f"interrupted by {number.name} after the command had ended" in capsys.readouterr().err
    assert "exit code 5" in process("report", "results", cwd=tmp_path).stdout


def test_a_signal_while_the_end_of_a_command_is_noted_leaves_it_on_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    note_end = PreparedCommand._note_end
    monkeypatch.setattr(
        PreparedCommand, "_note_end", lambda *found: [ask(signal.SIGTERM), note_end(*found), ask(signal.SIGINT)]
    )

    assert attached("sh", "-c", "exit 5") == 5
    assert kept(tmp_path)["exit_code"] == 5
    assert not (tmp_path / "results" / attached_run.HOOK).exists()


def asked_while(made: object) -> object:
    """Return what is sent a signal as it is called, and then does what ``made`` does."""

    def call(*found: object, **named: object) -> object:
        ask(signal.SIGTERM)
        return made(*found, **named)

    return call


@pytest.mark.parametrize("place", ["snapshot", "run_command", "write_hook"])
def test_a_signal_before_a_command_has_begun_begins_nothing_and_leaves_nothing(tmp_path, monkeypatch, capsys, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attached_run, place, asked_while(getattr(attached_run, place)))

    assert attached("sh", "-c", "touch begun") == 128 + signal.SIGTERM
    assert "to begin again: steptime attach -o results -- sh -c 'touch begun'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


SAVING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open("ready", "w").close()
time.sleep(120)
"""


def test_a_run_of_a_sweep_that_a_signal_cut_short_is_not_kept_though_it_saved_and_ended_well(tmp_path):
    options = ["--counts", "1", "--repeats", "1", "-o", "results"]
    running = start(tmp_path, SAVING, "sweep", *options, "--", "env", "N={workers}")
    os.kill(running.pid, signal.SIGTERM)
    _, said = running.communicate(timeout=60)
    planned = process("sweep", "--dry-run", *options, "--", "env", "N={workers}", *running.args[-2:], cwd=tmp_path)

    assert running.returncode == 128 + signal.SIGTERM
    assert b"to continue, rerun the same command" in said
    assert "script.py" in planned.stdout
    assert "# kept" not in planned.stdout


def test_a_verification_that_a_signal_cut_short_ends_by_it_and_keeps_no_cut_run(tmp_path):
    """In a process of its own, since threads of the tests would take its signals."""
    turns = (
        "import sys\nfrom pathlib import Path\nfrom steptime.interruption import Interrupted, obeyed\n"
        "from steptime.execution.progress import Silent\nfrom steptime.runner.attached_run import run_in_turns\n"
        "words = [sys.executable, 'script.py']\n"
        "try:\n    with obeyed():\n        run_in_turns([words, words], Path('runs'), 1, Silent())\n"
        "except Interrupted as stop:\n    sys.exit(stop.exit_code)\n"
    )
    (tmp_path / "script.py").write_text(SAVING)
    running = subprocess.Popen([sys.executable, "-c", turns], cwd=tmp_path)
    assert wait_until((tmp_path / "ready").exists, 90)
    running.send_signal(signal.SIGTERM)

    assert running.wait(60) == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("runs/*/*/attached.json"))
