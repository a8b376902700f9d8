"""The hook in the Pythons that users have: it comes in by itself, and records a library's steps."""

import json
import os
import subprocess

import pytest

from steptime.attach.folder import environment, write_hook
from steptime.environments.spec import candidates, how_to_get

STEPS = 5
SCRIPT = """
import importlib, pkgutil, sys
import steptime_attach

for module in pkgutil.walk_packages(steptime_attach.__path__, "steptime_attach."):
    importlib.import_module(module.name)
from steptime_attach import imports, library_calls

class Library:
    def request(self):
        return 1

    def forward(self, x):
        return x

    def backward(self):
        return None

    def update(self):
        return None

assert any(type(finder) is imports.Finder for finder in sys.meta_path), "the hook has not come in"
library_calls.requests_of(Library, "request", id, lambda: False)
library_calls.forward_of(Library, "forward", lambda *_: True)
library_calls.backward_of(Library, "backward")
library_calls.update_of(Library, "update")
library = Library()
for _ in range(int(sys.argv[1])):
    assert library.forward(library.request()) == 1
    library.backward()
    library.update()
"""


@pytest.fixture(scope="module", params=("3.8", "3.9", "3.10", "3.12", "3.13"))
def older(request, tmp_path_factory):
    """An interpreter of each version that attach is for, beside this one."""
    for path in candidates(request.param):
        said = subprocess.run([path, "-I", "-V"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.startswith(f"Python {request.param}."):
            return path
    pytest.skip(f"missing Python {request.param}: {how_to_get(request.param, [])[0]}")
    return None


@pytest.mark.sampled
def test_steps_of_a_library_are_recorded(older, tmp_path):
    record = tmp_path / "record"
    environ = {**os.environ, **environment(write_hook(tmp_path / "hook"), record, lines=True, flops=False)}
    command = [older, "-c", SCRIPT, str(STEPS)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = record.glob("*.jsonl")
    lines = list(map(json.loads, path.read_text().splitlines()))
    assert lines[0]["entry"] == "sitecustomize"
    steps = [line for line in lines if line["kind"] == "step"]
    regions = [sorted(step["regions"].keys() - {"collection"}) for step in steps]  # a busy machine has long ones
    assert regions == [["backward", "forward", "input", "update"]] * STEPS
    assert lines[-1]["kind"] == "end"
    assert not any(line["kind"] == "fault" for line in lines)
