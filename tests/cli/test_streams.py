"""Output that cannot be written, or only in part, costs the verb neither its work nor a traceback."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from program import PROGRAM


def shell(command: str, cwd: Path, **environment: str) -> tuple[list[int], str]:
    """Run ``command``, in which ``steptime`` stands for the program; return its exit codes and standard error."""
    program = shlex.join(PROGRAM)
    done = subprocess.run(
        ["bash", "-c", f'steptime() {{ {program} "$@"; }}; {command}; echo "${{PIPESTATUS[@]}}" >codes'],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [int(code) for code in (cwd / "codes").read_text().split()], done.stderr


@pytest.mark.parametrize("verb", ["list workloads", "--version"])
@pytest.mark.parametrize(("ending", "cause"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_output_that_cannot_be_written_is_told_in_one_line(verb, ending, cause, tmp_path):
    codes, said = shell(f"steptime {verb} {ending}", tmp_path)
    assert codes == [2]
    assert said == f"error: could not write to standard output: {cause}\n"


@pytest.mark.parametrize("ending", ["2>/dev/full", "2>&-", "2>&- >&-", "<&- 2>&-"])
def test_an_error_that_cannot_be_told_keeps_its_exit_code(ending, tmp_path):
    assert shell(f"steptime list nothing {ending}", tmp_path) == ([2], "")


@pytest.mark.parametrize("reader", ["true", "head -n 1"])
def test_a_reader_that_leaves_ends_the_program_quietly(reader, tmp_path):
    codes, said = shell(f"steptime list workloads | {reader} >/dev/null", tmp_path)
    assert codes[0] in {0, 141}
    assert said == ""


def test_a_narrow_encoding_loses_no_line(tmp_path):
    (tmp_path / "müßig").mkdir()
    codes, said = shell("steptime report müßig", tmp_path, PYTHONIOENCODING="ascii")
    assert codes == [2]
    assert "m\\xfc\\xdfig" in said


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path):
    codes, _ = shell("steptime frameworks new mine >&-", tmp_path)
    assert codes == [2]
    assert all("next: pip" not in path.read_text() for path in (tmp_path / "mine").rglob("*") if path.is_file())
