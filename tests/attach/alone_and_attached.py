"""Scripts that print what they trained, run alone and attached: attach may change none of it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from launching import interpreter_for
from warm_frameworks import IMPORTS, warm_framework

from steptime.attach.folder import environment, write_hook

NETWORK = """
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), 0.05)
"""
"""What scripts of PyTorch begin with: a small network and its optimizer."""


def record_of(folder: Path, framework: str, script: str) -> list[dict[str, Any]]:
    """Run ``script`` alone and attached; return the lines of its record, after the claim that both print the same."""
    (lines,) = _records(folder, framework, script)
    return lines


def records_of(folder: Path, framework: str, begin: str, scripts: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Run each of ``scripts`` behind ``begin`` as ``record_of`` does, in a fork of one process, which imports once."""
    forks = f"""
import atexit, os, sys
for name, script in {scripts!r}.items():
    child = os.fork()
    if not child:
        exec(script)
        print(name, *(f"{{each.sum():.9f}}" for each in net.parameters()))
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
    found = _records(folder, framework, begin + forks)
    found.sort(key=lambda lines: lines[0]["begin_ns"])
    return dict(zip(scripts, found, strict=True))


def _records(folder: Path, framework: str, script: str) -> list[list[dict[str, Any]]]:
    (folder / "script.py").write_text(script)
    alone, attached = (_warm if framework in IMPORTS else _started)(folder, framework)
    assert alone == attached
    files = (folder / "record").glob("*.jsonl")
    found = [list(map(json.loads, path.read_text().splitlines())) for path in files]
    assert [line for lines in found for line in lines if line["kind"] == "fault"] == []
    return found


def _warm(folder: Path, framework: str) -> tuple[str, str]:
    return (
        warm_framework(framework, attached=False).run(folder, "script.py"),
        warm_framework(framework, attached=True).run_attached(folder, "script.py"),
    )


def _started(folder: Path, framework: str) -> tuple[str, str]:
    variables = environment(write_hook(folder / "hook"), folder / "record", lines=False, flops=False)
    words = [interpreter_for(framework), "script.py"]
    alone, attached = (
        subprocess.run(
            words, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=True, timeout=300
        ).stdout
        for more in ({}, variables)
    )
    return alone, attached
