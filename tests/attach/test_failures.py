"""The exception that ends a process is written for the answer, with the user's own line; the script is as alone."""

import json
import os
import subprocess
import sys

import pytest

from steptime.attach.folder import environment, write_hook
from steptime.attach.line_sampler import package_of
from steptime.attach.patches import is_user_frame, library_folders


def run(folder, script):
    """Run ``script`` with the hook; return how it ended and what was written of its failure."""
    (folder / "script.py").write_text(script)
    hook, record = write_hook(folder / "hook"), folder / "record"
    record.mkdir()
    environ = {**os.environ, **environment(hook, record, lines=False, flops=False)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    return done, [json.loads(line) for file in record.glob("failed-*.txt") for line in file.read_text().splitlines()]


TORCHRUN = """a.py FAILED
Failures:
  <NO_OTHER_FAILURES>
Root Cause (first observed failure):
[0]:
  time      : now
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 7)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 7
"""
ERRORS = {
    "one line": ("raise ValueError('no class 7')", "ValueError: no class 7"),
    "hints behind it": (
        "raise RuntimeError('loading failed\\n  (1) set a flag\\nsee the page')",
        "RuntimeError: loading failed",
    ),
    "a worker's": (
        "raise ValueError('Caught in worker 0.\\nTraceback (most recent call last):\\n  x\\nValueError: no class 7')",
        "ValueError: no class 7",
    ),
    "a worker's with what another library adds behind it": (
        "raise ValueError('KeyError: 3\\nTraceback (most recent call last):\\n  x\\nKeyError: 3\\nAt:\\n  f')",
        "KeyError: 3",
    ),
    "a rank's that a signal ended, as torchrun raises it": (
        f"class ChildFailedError(Exception): pass\nraise ChildFailedError({TORCHRUN!r})",
        "ChildFailedError: rank 1 ended first, with Signal 6 (SIGABRT)",
    ),
    "colours": ("raise ValueError('\\x1b[1mno class\\x1b[0m 7')", "ValueError: no class 7"),
    "an own excepthook": ("import sys\nsys.excepthook = lambda *_: None\nraise KeyError('a')", "KeyError: 'a'"),
    "a library's": ("import json\njson.loads('{')", "JSONDecodeError: Expecting property name"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_exception_is_written_with_the_line_of_the_script(tmp_path, name):
    script, error = ERRORS[name]
    done, (line,) = run(tmp_path, script)
    assert done.returncode == 1
    assert line["error"].startswith(error)
    assert line["place"].startswith("script.py:")


def test_the_line_of_a_traceback_in_the_message_is_that_of_the_script(tmp_path):
    script = "def bad(x):\n    return 1 // x\n\n\n"
    raised = "if __name__ == '__main__':\n    import traceback\n    try:\n        bad(0)\n    except Exception:\n"
    raised += "        text = traceback.format_exc()\n    raise RuntimeError('Process 1 failed:\\n' + text)\n"
    _, (line,) = run(tmp_path, script + raised)
    assert (line["error"], line["place"].partition(" ")[0]) == (
        "ZeroDivisionError: integer division or modulo by zero",
        "script.py:2",
    )


@pytest.mark.parametrize(
    "script", ["pass", "import sys; sys.exit(3)", "try:\n    1 / 0\nexcept ZeroDivisionError: pass"]
)
def test_nothing_is_written_where_no_exception_ended_the_process(tmp_path, script):
    assert run(tmp_path, script)[1] == []


PACKAGES = {
    "/x/lib/python3.11/site-packages/transformers/trainer.py": "transformers",
    "/x/lib/python3/dist-packages/keras/src/trainers/trainer.py": "keras",
    "/x/lib/python3.11/site-packages/six.py": "six",
    "/x/lib/python3.11/site-packages/numpy/core/numeric.py": "",
    "/x/lib/python3.11/random.py": "",
    "/home/me/train.py": "",
}


@pytest.mark.parametrize("file", PACKAGES)
def test_the_library_of_a_file_is_its_folder_among_packages(file):
    assert package_of(file) == PACKAGES[file]


@pytest.mark.parametrize(
    ("module", "expected"), [("numpy.core", False), ("__main__", True)], ids=["of a library", "python -c"]
)
def test_code_that_was_made_from_text_is_the_users_in_the_main_module_alone(module, expected):
    space = {"__name__": module}
    exec(compile("import sys\nframe = sys._getframe()", "<__array_function__ internals>", "exec"), space)  # noqa: S102
    assert is_user_frame(space["frame"], library_folders()) is expected
