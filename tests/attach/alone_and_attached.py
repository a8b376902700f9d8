"""Scripts that print what they trained, run alone and attached: attach may change none of it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from launching import interpreter_for

from steptime.attach.folder import environment, write_hook


def record_of(folder: Path, framework: str, script: str) -> list[dict[str, Any]]:
    """Run ``script`` alone and attached; return the lines of its record, after the claim that both print the same."""
    (folder / "script.py").write_text(script)
    variables = environment(write_hook(folder / "hook"), folder / "record", lines=False, flops=False)
    words = [interpreter_for(framework), "script.py"]
    ends = [
        subprocess.run(
            words, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=True, timeout=120
        ).stdout
        for more in ({}, variables)
    ]
    assert ends[0] == ends[1]
    (path,) = (folder / "record").glob("*.jsonl")
    lines = list(map(json.loads, path.read_text().splitlines()))
    assert [line for line in lines if line["kind"] == "fault"] == []
    return lines
