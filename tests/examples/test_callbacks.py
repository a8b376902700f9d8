"""The callbacks begin and end a block; bases of this test take the places of Lightning's and transformers' own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import steptime

CALLBACKS = Path(__file__).parents[2] / "examples" / "callbacks"
SCRIPT = """
import os, sys, types

base = types.SimpleNamespace(Callback=object, TrainerCallback=object)
sys.modules["lightning"] = sys.modules["transformers"] = types.SimpleNamespace(pytorch=base, TrainerCallback=object)
callback = getattr(__import__({module!r}), {name!r})("runs")
recorded = [os.environ.get("STEPTIME_ATTACH")]
for hook in {hooks!r}:
    getattr(callback, hook)(1, 2)
    recorded.append(os.environ.get("STEPTIME_ATTACH"))
print(*recorded)
"""
HOOKS = {
    "lightning_block": ("RecordedFit", ["on_train_start", "on_train_end"]),
    "trainer_block": ("RecordedLoop", ["on_train_begin", "on_train_end"]),
}


def test_each_callback_is_here():
    assert {path.stem for path in CALLBACKS.glob("*.py")} == set(HOOKS)


@pytest.mark.parametrize("module", HOOKS)
def test_a_callback_records_from_the_begin_of_the_loop_to_its_end(module, tmp_path):
    name, hooks = HOOKS[module]
    path = os.pathsep.join([str(CALLBACKS), str(Path(steptime.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(module=module, name=name, hooks=hooks)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["None", str(tmp_path / "runs"), "None"]
