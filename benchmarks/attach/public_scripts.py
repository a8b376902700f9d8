"""Public training scripts, run alone and attached: what attach says beside what each logs of itself.

::

    python benchmarks/attach/public_scripts.py CLONES --python PYTHON [--scripts NAME …] [--renew]

CLONES holds clones of the repositories of ``SCRIPTS``, each named as its repository; PYTHON has the packages that they
import (torch, torchvision, timm, lightning, ultralytics, open_clip_torch, webdataset, trl, peft, torch_geometric,
tiktoken, rustbpe). Ultralytics asks torchvision for operators that its build on PyPI lacks over a torch of processors,
unless no box is sure enough (``conf``). Data sets are made up. A script logs
the time of a step or none: then steps are timed by when its lines come. Of losses the printed text is compared.
`--renew` writes `public_scripts.csv`.
"""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "scripts"))
from public_commands import SCRIPTS, Script

RESULT = Path(__file__).with_suffix(".csv")
WARM = 5
"""First logged steps that are left out, as attach leaves out the first ones."""


def lines_of(command: Sequence[str], folder: Path) -> list[tuple[float, str]]:
    """Run ``command``; return what it printed by line, with when each came; a progress bar's turns are lines."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), "COLUMNS": "200"}
    environment |= {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "PL_USE_MOCKED_MNIST": "1", "YOLO_OFFLINE": "true"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    found: list[tuple[float, str]] = []
    pending = b""
    while process.stdout is not None and (read := os.read(process.stdout.fileno(), 1 << 16)):
        *whole, pending = re.split(rb"[\r\n]", pending + read)
        found += [(time.monotonic(), line.decode(errors="replace")) for line in whole]
    if process.wait():
        sys.exit(f"{' '.join(command)} in {folder} ended with {process.returncode}:\n" + "\n".join(t for _, t in found))
    return found


def losses_of(script: Script, folder: Path, lines: Sequence[tuple[float, str]]) -> list[str]:
    """Return the printed losses."""
    texts = [line for _, line in lines]
    if script.log:
        texts = (folder / script.log).read_text().splitlines()
    return ["".join(map(str, found)) for line in texts for found in re.findall(script.losses, line)]


def own_steps(script: Script, lines: Sequence[tuple[float, str]]) -> list[float]:
    """Return the seconds of steps that the script logs, or between its lines; none where it logs neither."""
    if not script.every:
        return []
    if script.step:
        found = [float(number) for _, line in lines for number in re.findall(script.step, line)]
        seconds = [number * script.per if script.per else 1.0 / number for number in found if number > 0.0]
        return seconds[-1:] if not script.per else seconds[min(WARM, len(seconds) // 4) :]
    moments = [at for at, line in lines if re.search(script.losses, line)]
    return [(later - former) / script.every for former, later in pairwise(moments)][WARM:]


def checked_out(script: Script, clones: Path, folder: Path, python: str) -> Path:
    """Put the script's files and data into ``folder``; return where it starts."""
    repository, _, commit = script.source.partition(" ")
    if repository != "PyPI":
        git = ["git", "-C", str(clones / repository.rpartition("/")[2])]
        listed = subprocess.run(
            [*git, "ls-tree", "-r", "--name-only", commit], capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            if fnmatch(name, script.files or f"{script.folder}/*.py"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shown = subprocess.run([*git, "show", f"{commit}:{name}"], capture_output=True, check=True)
                code = shown.stdout
                for words, others in script.replaced:
                    code = code.replace(words.encode(), others.encode())
                (folder / name).write_bytes(code)
    place = folder / script.folder
    if script.make is not None:
        script.make(place, python)
    return place


def compared(script: Script, clones: Path, python: str) -> dict[str, Any]:
    """Run a script alone and attached; return the row of the table."""
    words = script.words.format(python=python, bin=Path(python).parent).split()
    with tempfile.TemporaryDirectory() as name:
        folders = []
        for part in ("alone", "attached"):
            (Path(name) / part).mkdir()
            folders.append(checked_out(script, clones, Path(name) / part, python))
        alone = lines_of(words, folders[0])
        results = Path(name) / "results"
        steptime = [sys.executable, "-m", "steptime"]
        lines = lines_of([*steptime, "attach", "--flops", "-o", str(results), "--", *words], folders[1])
        losses = [losses_of(script, *each) for each in zip(folders, (alone, lines), strict=True)]
        said = subprocess.run([*steptime, "report", results, "--json"], capture_output=True, text=True, check=True)
        if keep := os.environ.get("KEEP"):
            (Path(keep) / f"{script.name.replace(' ', '-')}.log").write_text("\n".join(line for _, line in lines))
            (Path(keep) / f"{script.name.replace(' ', '-')}.json").write_text(said.stdout)
    found = json.loads(said.stdout)["attached"]
    own = own_steps(script, lines)
    equal = sum(one == other for one, other in zip(*losses, strict=False))
    spread, rate = found["spread"], found["throughput"][script.unit]["per_s"] if found["throughput"] else None
    return {
        "script": script.name,
        "source": script.source,
        "ranks": found["world"],
        "steps": found["steps"],
        "own_step_ms": number(1e3 * statistics.median(own)) if own else "not logged",
        "attach_step_ms": number(1e3 * spread["median_s"]) if spread else "",
        "unit": script.unit,
        "own_per_s": number(script.samples / statistics.mean(own)) if own else "not logged",
        "attach_per_s": interval(rate) if rate else "",
        "not_known": (found["throughput"] or {}).get(script.unit, {}).get("reason") or "",
        "losses_equal": f"{equal} of {max(map(len, losses))}",
        "findings": "; ".join(finding["sentence"] for finding in found["findings"]),
        "load": f"{os.getloadavg()[0]:.1f}",
        "change": script.change,
    }


def number(value: float) -> str:
    """Return a number of three digits."""
    return f"{value:.3g}" if value < 1000.0 else f"{value:.0f}"


def interval(rate: dict[str, float | None]) -> str:
    """Return a rate with its interval."""
    if rate["value"] is None:
        return "not known"
    bounds = [rate["low"], rate["high"]]
    return number(rate["value"]) + (f" ({number(bounds[0])} to {number(bounds[1])})" if None not in bounds else "")


def main() -> None:
    """Run the scripts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--scripts", nargs="+", choices=[script.name for script in SCRIPTS])
    parser.add_argument("--renew", action="store_true")
    options = parser.parse_args()
    kept = list(csv.DictReader(RESULT.read_text().splitlines())) if RESULT.exists() else []
    rows = {row["script"]: row for row in kept}
    for script in SCRIPTS:
        if options.scripts and script.name not in options.scripts:
            continue
        rows[script.name] = row = compared(script, options.clones.absolute(), options.python)
        print(json.dumps(row, indent=1), flush=True)
        if options.renew:
            ordered = [rows[each.name] for each in SCRIPTS if each.name in rows]
            with RESULT.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
                writer.writerows(ordered)


if __name__ == "__main__":
    main()
