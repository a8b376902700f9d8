"""What this version costs beside another one: both are installed and run in turns.

::

    python benchmarks/core/against.py REVISION [--rounds 5] [--launches N ...] [--keep FOLDER] [--race lenet5]
        [--race-rounds 3] [--race-minutes 30] [--environments ~/.cache/steptime]

The revision and the last commit get environments of their own. Verbs that read records run on simulated folders of N
launches; what is printed are ratios of processor time and of wall time, this version to the other, with their 95 %
intervals over the rounds. Only ratios compare: another program on the machine meets both versions alike. What was
printed last is kept in against.md beside this file. Races come last (against_race.py); no round begins that would end
behind their minutes, if it takes as long as the longest one so far. Memory below that of this program (some 100 MB) is
not seen.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from against_race import STUDIES, RaceCost, make_environments, race_cost, race_variables
from reading import Shape, fill
from scipy.special import stdtrit

from steptime.results.store import Store

KEPT = Path(__file__).with_suffix(".md")
LEVEL = 0.95
STEPS = 30
LARGE_TRIALS = 100
NUMERIC = {"numpy", "numpy.libs", "scipy", "scipy.libs"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@dataclass(frozen=True)
class Version:
    """An installed version: its name, its program, and the bytes of its environment without extras."""

    name: str
    program: Path
    size_bytes: int
    numeric_bytes: int
    """Of them, numpy and scipy, in which all statistics are computed."""


@dataclass(frozen=True)
class Cost:
    """Of one run, in seconds, with the largest memory of a process in bytes."""

    cpu_s: float
    wall_s: float
    peak_bytes: int


def install(name: str, archive: Sequence[str], folder: Path) -> Version:
    """Install the sources that a command prints as a tar file; an environment that is there already is kept."""
    sources, environment = folder / f"{name}-sources", folder / f"{name}-environment"
    core = folder / f"{name}-bytes"
    if not core.exists():
        sources.mkdir(parents=True)
        data = subprocess.run(archive, stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as files:
            files.extractall(sources, filter="data")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
        python = environment / "bin" / "python"
        add_to(python, str(sources))
        files = [path for path in environment.rglob("*") if path.is_file() and not path.is_symlink()]
        numeric = [path for path in files if NUMERIC.intersection(path.parts)]
        sizes = [sum(path.stat().st_size for path in some) for some in (files, numeric)]
        add_to(python, f"{sources}[export]")
        core.write_text("{} {}".format(*sizes))
    return Version(name, environment / "bin" / "steptime", *map(int, core.read_text().split()))


def add_to(python: Path, package: str) -> None:
    """Install a package with what it needs, by uv where it is had."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv:
        command = [uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(python), package]
    else:
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", package]
    subprocess.run(command, env=ENVIRONMENT, check=True)


def measures(folders: Mapping[int, Path], scratch: Path) -> dict[str, list[str]]:
    """Return the arguments of the program for each measure, by its name."""
    small = folders[min(folders)]
    found = {
        "--help": ["--help"],
        "attach of a command that does nothing": ["attach", "-o", "{new}", "--", sys.executable, "-c", "pass"],
        f"report of {min(folders):,} launches": ["report", str(small)],
    }
    for launches, folder in sorted(folders.items())[1:]:
        found |= {
            f"report --json of {launches:,} launches": ["report", str(folder), "--json"],
            f"fit of {launches:,} launches": ["fit", str(folder), "-o", str(scratch / "profile.json")],
            f"export of {launches:,} launches": ["export", str(folder), "--to", "csv", "-o", str(scratch / "tables")],
        }
    return found


def cost_of(version: Version, arguments: Sequence[str]) -> Cost:
    """Run the program once."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(version.program), *(each.format(new=Path(scratch) / "run") for each in arguments)]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status):
        message = f"{version.name}: {' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}"
        raise RuntimeError(message)
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss * 1024)


def ratio_of(new: Sequence[float], old: Sequence[float]) -> str:
    """Return the geometric mean of the ratios of rounds with its interval."""
    logs = np.log(new) - np.log(old)
    rounds = len(logs)
    half = stdtrit(rounds - 1, 0.5 + 0.5 * LEVEL) * logs.std(ddof=1) / np.sqrt(rounds) if rounds > 1 else np.inf
    value, low, high = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def race(old: Version, new: Version, arguments: argparse.Namespace, folder: Path) -> None:
    """Race in turns, and print the row of the first ranking and that of the end."""
    variables = race_variables(ENVIRONMENT, folder, arguments.environments)
    for version in (old, new):
        make_environments(version.program, variables)
    runs: dict[str, list[RaceCost]] = {old.name: [], new.name: []}
    until, longest_s = time.monotonic() + 60.0 * arguments.race_minutes, 0.0
    for turn in range(arguments.race_rounds):
        if turn and time.monotonic() + longest_s > until:
            break
        began = time.monotonic()
        for version in (old, new) if turn % 2 else (new, old):
            runs[version.name].append(race_cost(version.program, STUDIES[arguments.race], variables))
        longest_s = max(longest_s, time.monotonic() - began)
    before, after = runs[old.name], runs[new.name]
    for name, cpu, wall in (("first ranking", "first_cpu_s", "first_wall_s"), ("end", "cpu_s", "wall_s")):
        own = {key: [[getattr(each, key) for each in side] for side in (after, before)] for key in (cpu, wall)}
        least = [
            f"{min(side):.0f} s, {min(walls):.0f} s of wall" for side, walls in zip(own[cpu], own[wall], strict=True)
        ]
        tell(
            f"| {name} of {arguments.race}, {len(after)} races of each | {ratio_of(*own[cpu])} | {least[1]} "
            f"| {least[0]} | {ratio_of(*own[wall])} | |"
        )


def tell(line: str) -> None:
    """Print a line and keep it."""
    print(line, flush=True)
    with KEPT.open("a") as file:
        file.write(f"{line}\n")


def main() -> None:
    """Install both versions, measure in turns, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", metavar="REVISION", help="of git: the version to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--launches", type=int, nargs="+", default=[1000, 10_000, 100_000], help="of simulated folders")
    parser.add_argument("--race", choices=[*STUDIES, "none"], default="lenet5")
    parser.add_argument("--race-rounds", type=int, default=3)
    parser.add_argument("--race-minutes", type=float, default=30.0)
    parser.add_argument("--environments", type=Path, help="a cache whose environments and datasets races use")
    parser.add_argument("--keep", type=Path, help="a folder for environments and simulated records")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        kept = arguments.keep or Path(scratch)
        git = shutil.which("git") or "git"
        here = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        old = install("before", [git, "archive", arguments.revision], kept)
        new = install("after", [git, "archive", here], kept)
        folders = {5: kept / "launches-5"} | {each: kept / f"launches-{each}" for each in arguments.launches}
        for launches, folder in folders.items():
            if not Store.exists(folder):
                trials = min(LARGE_TRIALS, launches)
                fill(folder, Shape(trials, launches // trials, STEPS, 0.0, 0.0))
        shares = [f"{size / old.size_bytes:.2f}" for size in (new.size_bytes, new.numeric_bytes)]
        size = (
            f"{shares[0]} of {old.size_bytes / 1e6:.0f} MB, of which numpy and scipy, that all verbs need, {shares[1]}"
        )
        KEPT.write_text("# This version beside another\n\n")
        tell(f"After ({here[:8]}) over before ({arguments.revision}), {arguments.rounds} rounds in turns,")
        tell(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; environment without extras: {size}.\n")
        tell("| | processor time | before | after | wall time | memory after |\n|---|---|---|---|---|---|")
        for name, words in measures(folders, Path(scratch)).items():
            runs: dict[str, list[Cost]] = {old.name: [], new.name: []}
            for turn in range(arguments.rounds + 1):
                for version in (old, new) if turn % 2 else (new, old):
                    cost = cost_of(version, words)
                    if turn:  # the first fills caches
                        runs[version.name].append(cost)
            before, after = runs[old.name], runs[new.name]
            cpu = ratio_of([each.cpu_s for each in after], [each.cpu_s for each in before])
            wall = ratio_of([each.wall_s for each in after], [each.wall_s for each in before])
            least = [min(each.cpu_s for each in own) for own in (before, after)]
            peak = max(each.peak_bytes for each in after)
            tell(f"| {name} | {cpu} | {least[0]:.2f} s | {least[1]:.2f} s | {wall} | {peak / 1e6:.0f} MB |")
        if arguments.race != "none":
            race(old, new, arguments, kept)


if __name__ == "__main__":
    main()
