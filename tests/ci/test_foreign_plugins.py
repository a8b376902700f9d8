"""Tests begin where plug-ins of others are installed that warn, as in images of GPU machines."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_WARNS = "import warnings\n\n\ndef {hook}({arguments}):\n    warnings.warn('benchmarks are off, since xdist is on')\n"
_HOOKS = {
    "pytest_configure": "config",
    "pytest_sessionstart": "session",
    "pytest_collection_modifyitems": "items",
    "pytest_runtest_setup": "item",
}


def exit_code_of(folder, plugin, test):
    """Return the exit code of a test with our settings and a plug-in."""
    (folder / "pytest_of_others.py").write_text(plugin)
    (folder / "test_one.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    options = ["-p", "pytest_of_others", "-p", "no:cacheprovider", str(folder / "test_one.py")]
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([*command, *options], cwd=folder, env=variables, capture_output=True, check=False).returncode


def test_a_plug_in_that_warns_in_every_hook_ends_no_test(tmp_path):
    plugin = "\n".join(_WARNS.format(hook=hook, arguments=arguments) for hook, arguments in _HOOKS.items())
    assert exit_code_of(tmp_path, plugin, "def test_nothing():\n    assert True\n") == 0


def test_a_warning_of_what_is_tested_fails_it(tmp_path):
    test = "import warnings\n\n\ndef test_it():\n    warnings.warn('ours')\n"
    assert exit_code_of(tmp_path, "", test) == 1
