"""Horovod's build starts as many compilers as there are cores, or as the user asked for."""

import os
from pathlib import Path

import pytest

from steptime.libraries.horovod.build import RECIPES, build_settings

ONE_A_CORE = f"-j{len(os.sched_getaffinity(0))}"


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        (None, ONE_A_CORE),
        ("", ONE_A_CORE),  # below a make without -j
        ("w", ONE_A_CORE),
        ("k -- PYTHON=python3.12", ONE_A_CORE),
        ("-j3", "-j3"),
        (" -j5 --jobserver-auth=3,4", " -j5 --jobserver-auth=3,4"),
    ],
)
def test_the_number_of_compilers(asked, flags, tmp_path: Path, monkeypatch):
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    if asked is not None:
        monkeypatch.setenv("MAKEFLAGS", asked)

    assert build_settings(RECIPES["pytorch"], str(tmp_path), str(tmp_path))["MAKEFLAGS"] == flags
