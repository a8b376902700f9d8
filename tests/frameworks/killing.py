"""Launch real processes of a framework and kill one of them in the middle of the training."""

import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from launching import LaunchResult, launch


def survivors_of(folder: Path, job: Mapping[str, Any], victim: str, **how: int) -> list[str]:
    """Kill ``victim`` (``worker-1``, ``server-0``) once all workers train; return who outlives the launch.

    A launch that does not end, or is reported as having gone well, fails the test.
    """
    found: list[LaunchResult] = []
    running = threading.Thread(target=lambda: found.append(launch(folder, job, **how)))
    running.start()
    run_folder = folder / "launch-0"
    workers = [f"worker-{rank}" for rank in range(how.get("workers", 1))]
    names = workers + [f"server-{rank}" for rank in range(how.get("servers", 0))]
    for name in workers:
        _wait_for("session", run_folder / f"{name}.jsonl", running)
    numbers = {name: _wait_for("process", run_folder / f"{name}.jsonl", running) for name in names}
    os.kill(numbers[victim], signal.SIGKILL)
    running.join(60)
    assert not running.is_alive()
    assert not found[0].outcome.ok
    return [name for name, number in numbers.items() if Path(f"/proc/{number}").exists()]


def _wait_for(kind: str, path: Path, running: threading.Thread) -> int:
    """Return the process id of a process that has written a record of a kind."""
    while running.is_alive():
        lines = path.read_text().splitlines() if path.exists() else []
        if any(f'"kind": "{kind}"' in line for line in lines):
            number: int = json.loads(lines[0])["pid"]
            return number
        threading.Event().wait(0.05)
    pytest.fail(f"the launch ended before {path.stem} had written {kind!r}")
