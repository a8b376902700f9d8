"""What steptime's readers give of real traces, beside HTA, TraceLens, nsys-ai and TensorBoard's own reader of events.

    .venv/bin/python benchmarks/imported/beside.py FOLDER PYTHON > benchmarks/imported/beside.csv

FOLDER has traces of PyTorch's profiler and of Nsight Systems (SQLite), PYTHON is as in ``one_gigabyte.py``, with
nsys-ai 0.3.0. HTA leaves out the last marked step, TraceLens marks none: of steptime the sums over all steps, and over
all but the last, are printed. Of Nsight's the shares from the first to the last kernel, as means over devices.
"""

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = """
import json, sys
from steptime.imported.kineto import read_kineto
from pathlib import Path
steps = read_kineto(Path(sys.argv[1])).processes[0].steps
names = ("compute", "forward", "backward", "update")
for label, own in (("all steps", steps), ("without the last", steps[:-1])):
    sums = {"steps": len(own), "computing_ms": sum(step.regions.get(name, 0) for step in own for name in names) * 1e-6}
    sums |= {"exposed_ms": sum(step.regions.get("collective", 0) for step in own) * 1e-6}
    if own:
        print(json.dumps({"of": label, **sums}))
"""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
import json
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=".")
busy = analysis.get_temporal_breakdown(visualize=False)
print(json.dumps({"of": "without the last", "computing_ms": float(busy["compute_time(us)"].iloc[0]) * 1e-3}))
"""
TRACELENS = """
import json, sys
from TraceLens import TreePerfAnalyzer
line = TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline().set_index("type")["time ms"]
sums = {"computing_ms": float(line["computation_time"]), "exposed_ms": float(line["exposed_comm_time"])}
print(json.dumps({"of": "the whole trace", **sums}))
"""
OUR_NSYS = """
import json, sys
from steptime.imported.nsys import read_nsys
from pathlib import Path
values = read_nsys(Path(sys.argv[1])).values
shares = {"computing": values["computing_share"], "exposed": values["exposed_communication_share"]}
print(json.dumps({"of": "all devices", **shares}))
"""
NSYS_AI = """
import json, re, subprocess, sys
from pathlib import Path
program = Path(sys.executable).with_name("nsys-ai")
shares = []
for device in range(8):
    command = [program, "overlap", sys.argv[1], "--gpu", str(device), "--trim", "0", "100000"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    lines = re.findall(r"(Total span|Compute only|NCCL only|Overlap): +([0-9.]+)ms", said)
    found = {name: float(ms) for name, ms in lines}
    if found:
        span = found["Total span"]
        shares.append(((found["Compute only"] + found["Overlap"]) / span, found["NCCL only"] / span))
computing, exposed = (sum(each) / len(shares) for each in zip(*shares))
print(json.dumps({"of": "all devices", "computing": computing, "exposed": exposed}))
"""
EVENTS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
reader = EventAccumulator(sys.argv[1])
reader.Reload()
entries = reader.Scalars("loss")
first, last = entries[0], entries[-1]
print(json.dumps({"of": "its entries", "step_ms": (last.wall_time - first.wall_time) / (last.step - first.step) * 1e3}))
"""
OUR_EVENTS = """
import json, sys
from steptime.imported.tracker_files import read_tensorboard
from pathlib import Path
[process] = read_tensorboard(Path(sys.argv[1])).processes
covered = process.steps[-1].number - 10
whole = sum(step.duration_ns * (10 if step.flags else 1) for step in process.steps)
print(json.dumps({"of": "its entries", "step_ms": whole / covered * 1e-6}))
"""
FIELDS = ("sample", "reader", "of", "steps", "computing_ms", "exposed_ms", "step_ms", "computing", "exposed", "refused")


def given(interpreter: str, program: str, path: Path) -> list[dict[str, object]]:
    """Return what a reader prints of a file, or why it refuses it."""
    done = subprocess.run(
        [interpreter, "-c", program, str(path)], capture_output=True, text=True, check=False, cwd=tempfile.gettempdir()
    )
    if done.returncode:
        return [{"refused": done.stderr.strip().splitlines()[-1][:100]}]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def write_events(folder: Path) -> Path:
    """Write an event file by TensorBoard's own writer; return it."""
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415 - likewise
    from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415 - likewise

    writer = EventFileWriter(str(folder))
    for step in range(10, 210, 10):
        value = Summary.Value(tag="loss", simple_value=1.0 / step)
        writer.add_event(Event(wall_time=1.7e9 + 0.237 * step, step=step, summary=Summary(value=[value])))
    writer.close()
    (path,) = folder.iterdir()
    return path


def main() -> None:
    """Print the table."""
    theirs = sys.argv[2]
    table = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    table.writeheader()

    def write(name: str, readers: dict[str, tuple[str, str]], path: Path) -> None:
        for reader, (interpreter, program) in readers.items():
            for row in given(interpreter, program, path):
                rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
                table.writerow({"sample": name, "reader": reader, **rounded})

    of_traces = {"steptime": (sys.executable, OURS), "HTA": (theirs, HTA), "TraceLens": (theirs, TRACELENS)}
    for path in sorted(Path(sys.argv[1]).glob("*.json.gz")):
        write(path.name.removesuffix(".json.gz"), of_traces, path)
    of_nsight = {"steptime": (sys.executable, OUR_NSYS), "nsys-ai": (theirs, NSYS_AI)}
    for path in sorted(Path(sys.argv[1]).glob("*.sqlite")):
        write(path.stem, of_nsight, path)
    with tempfile.TemporaryDirectory() as folder:
        of_events = {"steptime": (sys.executable, OUR_EVENTS), "TensorBoard": (sys.executable, EVENTS)}
        write("event file, a step of 237 ms", of_events, write_events(Path(folder)))


if __name__ == "__main__":
    main()
