"""What attach, traceml-ai and gpuprof print of one script with planted causes, and what they add to its processor time.

::

    python benchmarks/attach/peers.py [--python PYTHON_WITH_TORCH] [--rounds 2] [--renew]

Two ranks on this machine train `scripts/beside_peers.py` with one cause at a time, then with all at once. The peers are
used as their own documentation asks: traceml-ai by `traceml run`, `init` and `trace_step` around each step, gpuprof by
`profile` around the loop, its hook for DDP and its analysis of the group behind; attach needs no line. Each peer has an
environment of its own, made in a temporary folder over the given Python's packages.

A cause is `named` where a headline has it and the rank that it was planted in (garbage, in both ranks: no rank), `rank`
or `part` where it has one of the two, `hint` where a list of possible causes in the advice has it. Processor time is of
all processes of a run, less that of the run alone in the same round. `--renew` writes answers to `peers.json`.
"""

import argparse
import json
import os
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from steptime.runner.preparation import ready_interpreter

SCRIPT = Path(__file__).parent / "scripts" / "beside_peers.py"
RESULT = Path(__file__).with_suffix(".json")
PINNED = {"traceml-ai": "traceml-ai==0.5.0", "gpuprof": "gpuprof[host]==0.7.1"}
RANKS = 2


@dataclass(frozen=True)
class Cause:
    """What is planted, and the words by which an answer names it."""

    planted: str
    rank: int | None
    words: str


CAUSES = {
    "loader": Cause("loading takes 30 ms longer in rank 1", 1, r"input|loader"),
    "backward": Cause("backward takes 22 ms longer in rank 1", 1, r"backward"),
    "checkpoint": Cause("rank 0 saves for 0.5 s, every 20th step", 0, r"checkpoint(?!ing)|sav(e|ing)"),
    "garbage": Cause("each rank collects garbage for 1 s, at different steps", None, r"garbage|\bGC\b|collection"),
    "evaluation": Cause("rank 0 evaluates for 0.5 s, every 20th step", 0, r"evaluat|validation"),
}
EACH = [*CAUSES, "+".join(CAUSES)]
OWN_WORDS = {
    r"(\d+)% of step time waiting on the loader.*": r"input \1 %",
    r"Dataloader stall \+ CPU pegged.*": "input, processors busy",
    r"backward/forward = ([\d.]+).*": r"backward \1x forward: recomputing?",
    r"NCCL comm is (\d+)%.*": r"exchange \1 %",
    r"(\d+)% of step unaccounted.*": r"overhead \1 %",
    r"Step-time p99/p50 = ([\d.]+).*": r"p99 is \1x the median",
    r"First step.*|Step 0 = .*": "first step",
    r"Rank skew: rank (\d) median (\d+) ms vs rank \d (\d+) ms.*": r"rank \1 slower: \2 vs. \3 ms",
    r"Bucket \d+: rank (\d) is late on (\d+)% of steps \(p95 delta ([\d.]+) ms\)": r"rank \1 late in \2 % (p95 \3 ms)",
    r"No major bottlenecks detected|No rank skew detected": "nothing",
    r"Estimated cost.*|MFU .*": "",
}
"""Headlines of gpuprof, shortened."""


@dataclass(frozen=True)
class Answer:
    """Headlines that a tool printed, shortened, and the processor time of the run."""

    headlines: tuple[str, ...]
    hints: tuple[str, ...]
    """Causes that its advice lists among others."""
    processor_s: float


def timed(command: list[str], folder: Path, variables: dict[str, str]) -> tuple[str, float]:
    """Run ``command``; return what it printed and the processor time of it and all that it waited for."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **variables}
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{printed}")
    return printed, used.ru_utime + used.ru_stime


def torchrun(python: Path) -> list[str]:
    """Return the command that starts the script's ranks."""
    return [str(python), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", str(SCRIPT)]


def alone(python: Path, folder: Path, variables: dict[str, str]) -> Answer:
    """Run the script alone."""
    return Answer((), (), timed(torchrun(python), folder, variables)[1])


def attach(python: Path, folder: Path, variables: dict[str, str]) -> Answer:
    """Run it attached; findings about the start and end of the job are of no planted cause."""
    command = [sys.executable, "-m", "steptime", "attach", "-o", str(folder / "results"), "--json", "--"]
    printed, used = timed([*command, *torchrun(python)], folder, variables)
    findings = json.loads(printed.splitlines()[-1])["findings"]
    of_steps = [each["sentence"] for each in findings if each["kind"] not in {"start_up", "end", "first_steps"}]
    return Answer(tuple(of_steps), (), used)


def traceml(python: Path, folder: Path, variables: dict[str, str]) -> Answer:
    """Run it under traceml-ai; what it diagnoses of steps is what counts."""
    options = ["--run-name", "planted", f"--nproc-per-node={RANKS}"]
    command = [str(python.with_name("traceml")), "run", str(SCRIPT), *options]
    _, used = timed(command, folder, {"TOOL": "traceml-ai", **variables})
    summary = json.loads((folder / "logs" / "planted" / "final_summary.json").read_text())
    told = [summary["primary_diagnosis"], *summary["step_time"]["issues"]]
    headlines = dict.fromkeys(f"{each['kind']}: {each['summary']}" for each in told)
    return Answer(tuple(headlines), hinted(str(each["action"]) for each in told), used)


def gpuprof(python: Path, folder: Path, variables: dict[str, str]) -> Answer:
    """Run it under gpuprof, then ask it about each rank and about the group."""
    _, used = timed(torchrun(python), folder, {"TOOL": "gpuprof", **variables})
    with sqlite3.connect(folder / "gpuprof.db") as database:
        runs = database.execute("select id, group_id from runs").fetchall()
    questions = [[str(number)] for number, _ in runs] + [["--group", runs[0][1]]]
    told: dict[str, str] = {}
    for question in questions:
        command = [str(python.with_name("gpuprof")), "insights", "gpuprof.db", *question, "--json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        told |= {each["title"]: each["recommendation"] for each in json.loads(done.stdout)["insights"]}
    return Answer(shortened(told), hinted(told.values()), used)


TOOLS: dict[str, Callable[[Path, Path, dict[str, str]], Answer]] = {
    "alone": alone,
    "steptime": attach,
    "traceml-ai": traceml,
    "gpuprof": gpuprof,
}


def judged(answer: Answer, name: str) -> str:
    """Return how far ``answer`` names the cause ``name``."""
    cause = CAUSES[name]
    part = any(re.search(cause.words, each, re.IGNORECASE) for each in answer.headlines)
    blamed = rf"(?<!vs )\br(?:ank )?{cause.rank}\b(?! median \d+ ms vs)|rank {cause.rank} slower"
    rank = any(re.search(blamed, each, re.IGNORECASE) for each in answer.headlines)
    if part and (rank or cause.rank is None):
        return "named"
    if part or (rank and cause.rank is not None):
        return "part" if part else "rank"
    return "hint" if name in answer.hints else "no"


def hinted(advice: Iterable[str]) -> tuple[str, ...]:
    """Return the causes that pieces of advice have among others."""
    text = " ".join(advice)
    return tuple(name for name, cause in CAUSES.items() if re.search(cause.words, text, re.IGNORECASE))


def shortened(headlines: Iterable[str]) -> tuple[str, ...]:
    """Return headlines in few words, once each."""
    short = list(headlines)
    for pattern, words in OWN_WORDS.items():
        short = [re.sub(f"^(?:{pattern})$", words, each) for each in short]
    return tuple(each for each in dict.fromkeys(short) if each)


def environment(name: str, python: Path, folder: Path) -> Path:
    """Make an environment with a peer over the packages of ``python``; return its interpreter."""
    subprocess.run([str(python), "-m", "venv", str(folder / name)], check=True)
    own = folder / name / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    below, above = (
        subprocess.run([str(each), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
        for each in (python, own)
    )
    (Path(above) / "below.pth").write_text(f"{below}\n")
    subprocess.run([str(own), "-m", "pip", "install", "--quiet", PINNED[name]], check=True)
    return own


def measure(python: Path, folder: Path, rounds: int, causes: list[str]) -> list[dict[str, Any]]:
    """Run every tool with each of ``causes``, in turns; return what each run answered."""
    pythons = {tool: environment(tool, python, folder) if tool in PINNED else python for tool in TOOLS}
    chosen = random.Random(0)  # noqa: S311 - an order
    runs = []
    for number in range(rounds):
        for planted in causes:
            for tool in chosen.sample(list(TOOLS), len(TOOLS)):
                own = folder / f"{number}-{planted}-{tool}"
                own.mkdir()
                answer = TOOLS[tool](pythons[tool], own, {"CAUSES": planted})
                load = round(os.getloadavg()[0], 1)
                runs.append({"causes": planted, "round": number, "tool": tool, "load": load, **asdict(answer)})
                print(f"{time.strftime('%T')} {planted} {tool} {answer.processor_s:.2f} s", file=sys.stderr)
    return runs


def table(runs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return a row for each cause and tool."""
    alone_s = {(run["causes"], run["round"]): run["processor_s"] for run in runs if run["tool"] == "alone"}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["causes"], run["tool"]), []).append(run)
    rows = []
    for planted in dict.fromkeys(run["causes"] for run in runs):
        for tool in list(TOOLS)[1:]:
            answers = [
                Answer(tuple(run["headlines"]), tuple(run["hints"]), run["processor_s"])
                for run in groups[planted, tool]
            ]
            added = [run["processor_s"] - alone_s[run["causes"], run["round"]] for run in runs if run["tool"] == tool]
            loads = [run["load"] for run in groups[planted, tool]]
            rows.append(
                {
                    "cause": "all at once" if "+" in planted else CAUSES[planted].planted,
                    "tool": PINNED.get(tool, tool).replace("[host]", ""),
                    "named": verdicts(planted, answers),
                    "printed": "; ".join(answers[0].headlines) or "nothing",
                    "added_processor_s_all_causes": interval(added),
                    "load": f"{min(loads):.1f} to {max(loads):.1f}",
                }
            )
    return rows


def verdicts(planted: str, answers: list[Answer]) -> str:
    """Return how far each round's answer names what is planted, once where rounds agree."""
    said = [
        ", ".join(
            judged(answer, name) if planted == name else f"{name} {judged(answer, name)}" for name in planted.split("+")
        )
        for answer in answers
    ]
    return " / ".join(dict.fromkeys(said))


def interval(values: list[float]) -> str:
    """Return the mean with its 95 % interval."""
    mean, half = statistics.mean(values), float("nan")
    if len(values) > 1:
        half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.1f} ({mean - half:.1f} to {mean + half:.1f})"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--causes", nargs="+", choices=EACH, default=EACH)
    parser.add_argument("--renew", action="store_true")
    options = parser.parse_args()
    python = options.python or ready_interpreter("pytorch")
    if python is None:
        sys.exit("no environment for pytorch: run 'steptime env create pytorch', or name one by --python")
    with tempfile.TemporaryDirectory() as name:
        runs = measure(Path(python).absolute(), Path(name), options.rounds, options.causes)
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else []
    if options.renew:
        runs = [run for run in kept if run["causes"] not in options.causes] + runs
        RESULT.write_text(json.dumps(runs, indent=1) + "\n")
    for row in table(runs):
        print(" | ".join(row.values()))


if __name__ == "__main__":
    main()
