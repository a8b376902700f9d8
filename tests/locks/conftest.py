"""A folder on a file system that refuses flock: real, through FUSE."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from system_packages import missing

_PATIENCE_S = 20.0


@pytest.fixture
def lockless(request, tmp_path: Path) -> Iterator[Path]:
    """Yield the folder; flock answers ENOLCK there, or what a test's parameter says."""
    refusal = getattr(request, "param", "ENOLCK")
    if importlib.util.find_spec("mfusepy") is None:
        pytest.skip("missing mfusepy: pip install mfusepy")
    if reason := missing("locks"):
        pytest.skip(reason)
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("no file system of a program can be mounted here: /dev/fuse cannot be written")
    server, mount = tmp_path / "server", tmp_path / "mount"
    for folder in (server, mount):
        folder.mkdir()
    program = Path(__file__).with_name("lockless_mount.py")
    said = tmp_path / "said"
    with said.open("w") as log:
        serving = subprocess.Popen([sys.executable, program, server, mount, refusal], stderr=log)
    deadline = time.monotonic() + _PATIENCE_S
    while not mount.is_mount():
        if serving.poll() is not None:
            pytest.skip(f"no file system can be mounted here: {said.read_text()[-200:]}")
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield mount
    subprocess.run(["umount", "--lazy", mount], check=True)
    serving.kill()  # files that a test left open would keep it
    serving.wait(_PATIENCE_S)
