"""Time and memory for a large trace of PyTorch's profiler: steptime's reader in turns with HTA.

The trace is made here: a rank of DDP with operators, launches, kernels on two streams, arrows and annotations, as
the profiler writes them. Both read it in a fresh process and give the same figures: computing, and how much of the
communication something computes beside.

    .venv/bin/python benchmarks/imported/one_gigabyte.py FOLDER HTA_PYTHON [GIGABYTES] [TURNS]

HTA_PYTHON is an interpreter with HolisticTraceAnalysis 0.5.0.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

STEP_US, EVENTS = 100_000.0, 400
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
THEIRS = """
import json, sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1] + "/rank0.json"}, trace_dir=sys.argv[1])
busy = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
computing = float(busy["compute_time(us)"].iloc[0]) * 1e-6
print(json.dumps({"computing_s": computing, "overlap": float(overlap["comp_comm_overlap_pctg"].iloc[0]) / 100}))
"""


def write_trace(path: Path, most_bytes: float) -> int:
    """Write a trace of at least so many bytes; return its steps."""
    step = written = 0
    with path.open("w") as file:
        about = {"backend": "nccl", "rank": 0, "world_size": 2}
        written += file.write(f'{{"schemaVersion": 1, "distributedInfo": {json.dumps(about)}, "traceEvents": [\n')
        while written < most_bytes:
            for event in step_events(step):
                written += file.write(f"{json.dumps(event)},\n")
            step += 1
        file.write('{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9.0}\n')
        file.write('], "traceName": "made", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1711964646000000000}\n')
    return step


def step_events(step: int) -> list[dict]:
    """Return the events of a step."""
    at = 1_000_000.0 + step * STEP_US

    def event(kind: str, name: str, begin: float, lasted: float, tid: int, **args: object) -> dict:
        place = {"pid": 0 if kind in {"kernel", "gpu_memcpy"} else 4242, "tid": tid}
        return {"ph": "X", "cat": kind, "name": name, **place, "ts": round(begin, 3), "dur": lasted, "args": args}

    events = [event("user_annotation", f"ProfilerStep#{step}", at, STEP_US - 10.0, 4242)]
    for index in range(EVENTS):
        begin = at + 200.0 * index
        number = step * EVENTS * 2 + index + 1
        shape = {"Input Dims": [[8, 1024], [1024, 1024]], "Input type": ["float", "float"], "Sequence number": number}
        events += [
            event("cpu_op", "aten::addmm", begin, 150.0, 4242, **{"External id": number, "Fwd thread id": 0, **shape}),
            event("cuda_runtime", "cudaLaunchKernel", begin + 20.0, 8.0, 4242, correlation=number, cbid=211),
            {"ph": "s", "id": number, "pid": 4242, "tid": 4242, "ts": begin + 20.0, "cat": "ac2g", "name": "ac2g"},
            {"ph": "f", "id": number, "pid": 0, "tid": 7, "ts": begin + 60.0, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            event("kernel", "void gemm_kernel<float, 128, 64>(int, float const*)", begin + 60.0, 120.0, 7,
                  correlation=number, device=0, stream=7, grid=[64, 1, 1], block=[256, 1, 1]),
        ]  # fmt: skip
        if index % 40 == 0:
            number += EVENTS
            events += [
                event("cuda_runtime", "cudaLaunchKernel", begin + 30.0, 8.0, 4242, correlation=number, cbid=211),
                event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", begin + 100.0, 150.0, 20,
                      correlation=number, device=0, stream=20, **{"Collective name": "allreduce"}),
            ]  # fmt: skip
    return events


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
    folder, theirs = Path(sys.argv[1]), sys.argv[2]
    size, turns = (float(text) for text in (*sys.argv[3:], *("1", "3")[len(sys.argv) - 3 :]))
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "rank0.json"
    steps = write_trace(trace, size * 1e9)
    for turn in range(int(turns)):
        for name, interpreter, program in (("steptime", sys.executable, OURS), ("HTA", theirs, THEIRS)):
            row = {"turn": turn, "reader": name, "bytes": trace.stat().st_size, "steps": steps}
            print(json.dumps({**row, **measured(interpreter, program, folder)}), flush=True)


if __name__ == "__main__":
    main()
