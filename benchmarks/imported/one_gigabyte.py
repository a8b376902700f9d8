"""Time and memory for a large trace of PyTorch's profiler: steptime's reader in turns with HTA and TraceLens.

The trace is a real one, repeated. All read it in fresh processes and give the same figures: computing, and how much of
the communication something computes beside.

    .venv/bin/python benchmarks/imported/one_gigabyte.py TRACE FOLDER PYTHON [GIGABYTES] [TURNS]

PYTHON is an interpreter with HolisticTraceAnalysis 0.5.0 and TraceLens 0.1.0 of AMD-AGI (commit 171dd747 on GitHub;
the package index has another program of that name). Both refuse traces of gloo on processors.
"""

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

OURS = """
import json, sys
from pathlib import Path
from steptime.imported.kineto import read_kineto
source = read_kineto(Path(sys.argv[1]) / "rank0.json")
steps = source.processes[0].steps
names = ("compute", "forward", "backward", "update")
computing = sum(step.regions.get(name, 0) for step in steps for name in names) * 1e-9
exposed = sum(step.regions.get("collective", 0) for step in steps) * 1e-9
hidden = source.values["hidden_communication_s"] * len(steps)
print(json.dumps({"computing_s": computing, "overlap": hidden / (hidden + exposed)}))
"""
HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1] + "/rank0.json"}, trace_dir=sys.argv[1])
busy = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
computing = float(busy["compute_time(us)"].iloc[0]) * 1e-6
print(json.dumps({"computing_s": computing, "overlap": float(overlap["comp_comm_overlap_pctg"].iloc[0]) / 100}))
"""
TRACELENS = """
import json, sys
from TraceLens import TreePerfAnalyzer
line = TreePerfAnalyzer.from_file(sys.argv[1] + "/rank0.json").get_df_gpu_timeline().set_index("type")["time ms"]
computing, exposed, whole = (float(line[name]) for name in ("computation_time", "exposed_comm_time", "total_comm_time"))
print(json.dumps({"computing_s": computing * 1e-3, "overlap": 1 - exposed / whole}))
"""
READERS = {"steptime": OURS, "HTA": HTA, "TraceLens": TRACELENS}
STEP = "ProfilerStep#"
JOINING = ("correlation", "External id", "Sequence number", "Ev Idx", "Python id", "Python parent id")
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))\n"
"""A reader that wants more addresses than 24 GiB ends with an error, instead of taking what other programs need."""


def write_trace(source: Path, path: Path, most_bytes: float) -> int:
    """Write a real trace again and again, until it has so many bytes; return how often.

    Each copy lies behind the one before: times, numbers of steps and whatever joins events go on, so that the whole is
    valid as a single trace.
    """
    read = source.read_bytes()
    trace = json.loads(gzip.decompress(read) if source.suffix == ".gz" else read)
    events = trace.pop("traceEvents")
    once = [event for event in events if "ts" not in event or event["ph"] == "M"]
    again = [event for event in events if "ts" in event and event["ph"] != "M"]
    again = [event for event in again if event.get("cat") != "Trace" and not event["name"].startswith("Record Window")]
    lasted = max(event["ts"] + event.get("dur", 0) for event in again) - min(event["ts"] for event in again) + 1000
    most = 1 + max(number for event in again for number in _numbers(event).values())
    steps = len({event["name"] for event in again if event["name"].startswith(STEP)})
    copies = written = 0
    with path.open("w") as file:
        written += file.write(json.dumps(trace)[:-1] + ',\n"traceEvents": [\n')
        written += file.write(",\n".join(json.dumps(event) for event in once))
        while written < most_bytes:
            for event in again:
                written += file.write(f",\n{json.dumps(_moved(event, copies, lasted, most, steps))}")
            copies += 1
        file.write("\n]}\n")
    return copies


def _numbers(event: dict) -> dict[str, int]:
    """Return what joins an event with others, by key."""
    args = {key: event.get("args", {}).get(key) for key in JOINING}
    return {key: number for key, number in {**args, "id": event.get("id")}.items() if isinstance(number, int)}


def _moved(event: dict, copy: int, lasted: float, most: int, steps: int) -> dict:
    """Return an event of a further copy."""
    moved = {**event, "ts": round(event["ts"] + copy * lasted, 3)}
    joined = {key: number + copy * most for key, number in _numbers(event).items()}
    if "id" in joined:
        moved["id"] = joined.pop("id")
    if joined:
        moved["args"] = {**event["args"], **joined}
    if event["name"].startswith(STEP):
        moved["name"] = f"{STEP}{int(event['name'].removeprefix(STEP)) + copy * steps}"
    return moved


def measured(interpreter: str, program: str, folder: Path) -> dict[str, object]:
    """Run a reader in a process of its own; return its figures, seconds and most memory."""
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        ["/usr/bin/env", "time", "-f", "%M", interpreter, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = done.stderr.strip().splitlines()
    figures = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": lines[-2:]}
    memory = int(lines[-1]) * 1024 if lines and lines[-1].isdecimal() else after.ru_maxrss * 1024
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**figures, "wall_s": time.monotonic() - begin, "processor_s": cpu_s, "memory_bytes": memory}


def main() -> None:
    """Print what each turn took, as JSON Lines."""
    source, folder, theirs = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    size, turns = (float(text) for text in (*sys.argv[4:], *("1", "3")[len(sys.argv) - 4 :]))
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "rank0.json"
    copies = write_trace(source, trace, size * 1e9)
    for turn in range(int(turns)):
        for name, program in READERS.items():
            interpreter = sys.executable if name == "steptime" else theirs
            row = {"turn": turn, "reader": name, "bytes": trace.stat().st_size, "copies": copies}
            load = {"load": round(os.getloadavg()[0], 1)}
            print(json.dumps({**row, **load, **measured(interpreter, f"{LIMITED}{program}", folder)}), flush=True)


if __name__ == "__main__":
    main()
