"""The command keeps its output, exit code and signals; the answer goes to standard error, and results are kept."""

import fcntl
import http.client
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
import urllib.parse
from pathlib import Path

import pytest
from program import PROGRAM, process
from typer.testing import CliRunner

from steptime.cli import page_server
from steptime.cli.app import app


def attach(folder: Path, *words: str, options: tuple[str, ...] = (), **more) -> subprocess.CompletedProcess[str]:
    """Run a command attached, with results in ``folder``."""
    command = [*PROGRAM, "attach", "-o", str(folder / "results"), *options, "--", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder, **more)


def start(folder: Path, script: str, options: tuple[str, ...] = (), **more) -> subprocess.Popen[str]:
    own = ["attach", "-o", str(folder / "results"), *options]
    command = [*PROGRAM, *own, "--", sys.executable, "-u", "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, cwd=folder, **pipes, **more)


def kept(folder: Path) -> dict:
    return json.loads((folder / "results" / "attached.json").read_text())


def test_standard_input_and_output_are_those_of_the_command_alone(tmp_path):
    script = "import os; os.write(1, b'raw\\x00\\xff' + input().encode())"
    done = attach(tmp_path, sys.executable, "-c", script, input="typed\n", encoding="latin-1")
    assert done.stdout == "raw\x00\xfftyped"


@pytest.mark.sampled
@pytest.mark.parametrize("code", [0, 117])
def test_the_exit_code_is_that_of_the_command(tmp_path, code):
    assert attach(tmp_path, sys.executable, "-c", f"raise SystemExit({code})").returncode == code


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_ends_the_command_ends_this_one(tmp_path, number):
    done = attach(tmp_path, sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})")
    assert done.returncode == -number
    assert kept(tmp_path)["exit_code"] == 128 + number


def test_arguments_that_look_like_options_are_the_commands(tmp_path):
    done = attach(tmp_path, sys.executable, "-c", "import sys; print(sys.argv[1:])", "--json", "-o", "--help")
    assert done.stdout == "['--json', '-o', '--help']\n"


def test_a_program_that_is_not_there_ends_as_in_a_shell(tmp_path):
    done = attach(tmp_path, "no-such-program")
    assert done.returncode == 127
    assert done.stderr.startswith("error: no-such-program cannot be started: no such program on the PATH; ")
    assert not (tmp_path / "results").exists()


def test_a_folder_with_results_gets_a_sibling_with_a_number(tmp_path):
    attach(tmp_path, "true")
    done = attach(tmp_path, "true")
    assert done.returncode == 0
    assert done.stderr.startswith(f"steptime attach: results go to {tmp_path}/results-2, since ")
    assert (tmp_path / "results-2" / "attached.json").is_file()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("raise SystemExit(1)", ["attach-train"]),
        ("", ["attach-train", "attach-train-2"]),
        ("open('steptime-results/attach-train/mine', 'w'); raise SystemExit(1)", ["attach-train", "attach-train-2"]),
        ("raise SystemExit(STEP)", ["attach-train", "attach-train-2"]),
    ],
    ids=["failed", "ended", "another-file", "a-step"],
)
def test_a_run_has_the_name_of_one_that_failed_before_its_first_step(tmp_path, before, names):
    step = "STEP = open('steptime-results/attach-train/attached/a.jsonl', 'w').write('{\"kind\": \"step\"}\\n')\n"
    for text in (before, ""):
        (tmp_path / "train.py").write_text(step * ("STEP" in text) + text)
        command = [*PROGRAM, "attach", "--", sys.executable, "train.py"]
        subprocess.run(command, capture_output=True, timeout=120, check=False, cwd=tmp_path)

    assert sorted(each.name for each in (tmp_path / "steptime-results").iterdir()) == names


WAITING = """
import signal, sys, time
def leave(number, frame):
    print("got", number, flush=True)
    sys.exit(9)
signal.signal(signal.{name}, leave)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_reaches_the_command_once_and_results_are_kept(tmp_path, name):
    running = start(tmp_path, WAITING.format(name=name))
    assert running.stdout.readline() == "ready\n"
    os.kill(running.pid, getattr(signal, name))
    output, _ = running.communicate(timeout=60)
    assert output == f"got {int(getattr(signal, name))}\n"
    assert running.returncode == 9
    assert kept(tmp_path)["exit_code"] == 9


def test_a_page_is_served_while_the_command_runs_and_takes_no_signal_from_it(tmp_path):
    running = start(tmp_path, WAITING.format(name="SIGTERM"), options=("--serve",))
    assert running.stdout.readline() == "ready\n"
    address = urllib.parse.urlsplit(running.stderr.readline().split()[-1])
    page = http.client.HTTPConnection(address.netloc, timeout=60)
    page.request("GET", address.path)
    assert "No end is recorded yet; latest: no step." in page.getresponse().read().decode()
    page.close()
    os.kill(running.pid, signal.SIGTERM)
    output, _ = running.communicate(timeout=60)
    assert output == f"got {int(signal.SIGTERM)}\n"
    assert running.returncode == 9


def test_a_command_runs_though_its_page_cannot_be_served(tmp_path, monkeypatch):
    monkeypatch.setattr(page_server, "HOST", "192.0.2.1")  # an address of no machine
    done = CliRunner().invoke(app, ["attach", "--serve", "-o", str(tmp_path / "results"), "--", "sh", "-c", "exit 5"])
    assert done.exit_code == 5
    assert done.stderr.startswith("steptime attach: its page is not served: OSError: ")
    assert "Traceback" not in done.stderr


def test_ctrl_c_of_a_terminal_reaches_the_command_once(tmp_path):
    """The kernel sends it to the whole group; the command must not get it a second time from here."""
    script = WAITING.format(name="SIGINT").replace("sys.exit(9)", "time.sleep(1.0); sys.exit(9)")
    main, other = pty.openpty()
    running = start(tmp_path, script, stdin=other, start_new_session=True, preexec_fn=_own_terminal)
    os.close(other)
    assert running.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.write(main, b"\x03")
    output, errors = running.communicate(timeout=60)
    os.close(main)
    assert output == "got 2\n"
    assert running.returncode == 9
    assert "All of it" in errors


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_results_of_a_run_whose_steptime_was_killed_can_be_read(tmp_path):
    running = start(tmp_path, "print('ready', flush=True); import time; time.sleep(2)")
    assert running.stdout.readline() == "ready\n"
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)
    done = process("report", "results", cwd=tmp_path)
    assert "no step was seen" in done.stdout


def test_a_report_of_a_run_of_which_no_profile_could_be_made_has_nothing_to_warn_of(tmp_path):
    attach(tmp_path, "true")
    process("fit", "results", cwd=tmp_path, check=2)
    assert process("report", "results", cwd=tmp_path).stderr == ""


def test_json_is_the_last_line_of_standard_error(tmp_path):
    done = attach(tmp_path, sys.executable, "-c", "import sys; print('mine', file=sys.stderr)", options=("--json",))
    first, last = done.stderr.splitlines()
    assert first == "mine"
    assert json.loads(last)["exit_code"] == 0


CAUSES = {
    "-I": ([sys.executable, "-I", "-c", "pass"], "starts Python with -I"),
    "in a flag of several letters": ([sys.executable, "-uE", "-c", "pass"], "starts Python with -E"),
    "env -i": (["env", "-i", sys.executable, "-c", "pass"], "environment was cleaned"),
    "below a shell": (["sh", "-c", f"{sys.executable} -I -c 'import time; time.sleep(1.5)'; true"], "with -I"),
    "cleaned below a shell": (
        ["sh", "-c", f"unset STEPTIME_ATTACH; {sys.executable} -c 'import time; time.sleep(1.5)'; true"],
        "environment was cleaned",
    ),
    "no library": ([sys.executable, "-c", "import json"], "imported no library of training"),
    "no Python": (["true"], "no Python process was seen"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_said_where_no_process_was_attached(tmp_path, name):
    words, said = CAUSES[name]
    done = attach(tmp_path, *words)
    assert said in " ".join(done.stderr.split())
    assert said in kept(tmp_path)["not_attached"]


def test_the_results_are_closed_to_others_and_the_code_of_the_hook_does_not_stay_there(tmp_path):
    attach(tmp_path, sys.executable, "-c", "pass")
    assert (tmp_path / "results").stat().st_mode & 0o077 == 0
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert names == {"attached", "attached.json", "machine.json", "run.lock", "study.json", "study.yaml"}


def test_an_answer_that_cannot_be_made_changes_nothing_of_the_end(tmp_path):
    spoil = "import os; os.symlink('/etc/passwd', os.environ['STEPTIME_ATTACH'] + '/x.jsonl'); raise SystemExit(5)"
    done = attach(tmp_path, sys.executable, "-c", spoil)
    assert done.returncode == 5
    assert "symbolic link" in done.stderr


REPLACING = {
    "export": ("export PYTHONPATH=src\nexec {python} wait.py\n", "line 2: PYTHONPATH is 'src'"),
    "in front of the command": ("PYTHONPATH=$PWD/lib {python} wait.py\n", "line 2: PYTHONPATH is '{here}/lib'"),
    "emptied": ("export PYTHONPATH=\n{python} wait.py\n", "line 2: PYTHONPATH is empty or not set"),
    "unset": ("unset PYTHONPATH\n{python} wait.py\n", "attached: PYTHONPATH is empty or not set"),
    "left out": ("exec env -u PYTHONPATH {python} wait.py\n", "attached: PYTHONPATH is empty or not set"),
    "by Python": (
        (
            '{python} -c \'import os, subprocess, sys; os.environ.update(PYTHONPATH="lib"); '
            'subprocess.run([sys.executable, "wait.py"])\'\n'
        ),
        "attached: PYTHONPATH is 'lib'",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("way", REPLACING)
def test_a_pythonpath_that_was_replaced_is_named_with_its_place(tmp_path, way):
    text, said = REPLACING[way]
    (tmp_path / "wait.py").write_text("import time; time.sleep(1.5)")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n" + text.format(python=sys.executable))
    attach(tmp_path, "sh", "run.sh")
    reason = kept(tmp_path)["not_attached"]
    assert reason.startswith("no process was attached: ")
    assert said.format(here=tmp_path) in reason


def test_a_pythonpath_that_was_extended_is_not_named(tmp_path):
    (tmp_path / "run.sh").write_text(f"PYTHONPATH=lib:$PYTHONPATH {sys.executable} -c 'import time; time.sleep(1.5)'\n")
    attach(tmp_path, "sh", "run.sh")
    assert "PYTHONPATH is" not in kept(tmp_path)["not_attached"]
