"""The first ten minutes on a borrowed GPU: what of docs/gpu.md holds there, as one JSON.

::

    python benchmarks/gpu/first_minutes.py prepare build/gpu                   # here: fill run folders
    python build/gpu/first_minutes.py run --seconds 540 > first-minutes.json   # there: train in them
    python benchmarks/gpu/first_minutes.py table first-minutes.json …          # the tables of docs/gpu.md

``run`` needs an interpreter with torch, JAX or Chainer (CuPy alone is probed), and neither a network nor the rest of
steptime: a run folder has all that a worker imports. A framework that cannot be imported is named and left out.
One launch runs at a time. As each ends, its name and verdict go to standard error and all of it to ``found.jsonl``, so
that another ``run`` goes on where a machine was taken away.
``prepare --device cpu --workload lenet5`` tries the same code on processors.
"""

# ruff: noqa: PLC0415 - each half runs where the packages of the other are missing
import argparse
import importlib
import json
import math
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FRAMEWORKS = {"pytorch": "torch", "jax": "jax", "chainer": "chainer"}
SIZES = (64, 128, 256, 512, 1024)
STEPS, FEWEST_STEPS, CLOSE = 200, 10, 0.01
GROUPS, _STUDENT = 6, 2.571
"""Groups of two plain loops and two timed ones, and the 97.5 % quantile of Student's t for 5 degrees of freedom."""
_COPIED_BYTES, _COPIES = 64 * 2**20, 10
_LEAST_S = 20.0
"""Left of the time, without which nothing more is begun."""
_COMPARING, _APART = 0.4, 0.25
"""Of a run's share of the time: what loops are compared in, and what the stages of a breakdown get."""
_ADDRESS = "127.0.0.1"
_FOUND = "found.jsonl"


def prepare(folder: Path, device: str, workload: str, batch: int, steps: int) -> None:
    """Fill run folders for every framework and precision, and write what is to be run in which order."""
    import numpy as np

    from steptime.catalog.manifest import load_manifests
    from steptime.catalog.workloads.table import build_workload
    from steptime.execution.jobs import AblationSchedule, TimingSchedule, ablation_job, timing_job
    from steptime.execution.run_folder import make_run_folder
    from steptime.study.trial import Trial

    shape = (3, 64, 64) if workload == "resnet50" else (1, 28, 28)
    built = build_workload(workload, input_shape=shape, classes=10)
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (4 * batch, *shape), dtype=np.uint8)
    np.savez(folder / "batches.npz", images=images, labels=np.arange(len(images)) % 10)
    transform = {"mean": [0.5] * shape[0], "std": [0.25] * shape[0]}
    arrays = {"form": "arrays", "path": "../batches.npz", "samples": len(images), "transform": transform}
    loader = {"kind": "native", "processes": 0, "dataset": arrays}
    plan = []
    for name in FRAMEWORKS:
        manifest = load_manifests()[name]
        precisions = manifest.cuda_precisions if device == "cuda" else manifest.precisions
        runs = [("session", precision, 1) for precision in precisions]
        for kind, precision, workers in [*runs, ("ablation", "fp32", 1), ("ablation", "fp32", 2)]:
            strategy = "single" if workers == 1 else "allreduce"
            trial = Trial(
                framework=name,
                strategy=strategy,
                workload=workload,
                input_shape=shape,
                classes=10,
                dataset=None,
                loader="synthetic",
                device=device,
                precision=precision,
                workers=workers,
                batch_per_worker=batch,
                options={key: each.default for key, each in manifest.options_for(strategy).items()},
            )
            if kind == "session":
                timing = TimingSchedule(warmup_steps=5, seconds=5.0, min_steps=steps, max_steps=steps)
                job = timing_job(trial, built, {"kind": "synthetic", "distinct_batches": 2}, timing)
            else:
                job = ablation_job(trial, built, loader, AblationSchedule(warmup_steps=5, seconds=10.0))
            run = f"{name}-{kind}-{precision}-{workers}"
            (folder / run).mkdir()
            make_run_folder(folder / run, manifest.folder, job, manifest.libraries, name)
            entry = {"framework": name, "kind": kind, "precision": precision, "workers": workers, "folder": run}
            plan.append({**entry, "launcher": manifest.launcher_for(strategy, trial.options)})
    plan.sort(key=_order)
    (folder / "plan.json").write_text(json.dumps({"device": device, "steps": steps, "runs": plan}, indent=1))
    shutil.copy(__file__, folder / "first_minutes.py")


def _order(launch: dict[str, Any]) -> tuple[int, bool, bool]:
    """Return a key by which the claims of all frameworks come before further ones of a single framework.

    Clock and breakdown of each in fp32 are the claims of most numbers, then its other precisions, then two workers.
    """
    return launch["workers"], launch["precision"] != "fp32", launch["kind"] != "session"


def run(folder: Path, seconds: float) -> dict[str, Any]:
    """Run what is left of the plan until ``seconds`` have passed; return all that was found, by earlier runs too."""
    started = time.monotonic()
    plan = json.loads((folder / "plan.json").read_text())
    found: dict[str, Any] = {
        "device": plan["device"],
        "python": sys.version.split()[0],
        "runs": [],
        "left_out": {},
        "not_begun": [],
    }
    for name, module in FRAMEWORKS.items():
        said = _ask(["-c", f"import {module}; print({module}.__version__)"], folder, 120.0)
        if said["code"]:
            found["left_out"][name] = said["error"]
    found["smi"] = _smi()
    found["load"] = os.getloadavg()[0]
    found["cupy"] = _ask(["-c", _CUPY], folder, 120.0)
    devices = len((found["smi"] or "").splitlines()) if plan["device"] == "cuda" else None
    kept = _kept(folder / _FOUND)
    found["runs"] = [*kept.values()]
    runs = [each for each in plan["runs"] if each["framework"] not in found["left_out"] and each["folder"] not in kept]
    for place, each in enumerate(runs):
        left = seconds - (time.monotonic() - started)
        hindered = _hindrance(each, devices, left)
        if hindered:
            found["not_begun"].append(f"{each['folder']}: {hindered}")
            continue
        begun, share_s = time.monotonic(), left / (len(runs) - place)
        if each["kind"] == "session":
            result = _session(folder / each["folder"], plan["steps"], share_s, left)
        else:
            result = _ablation(folder / each["folder"], each["workers"], share_s, left)
        found["runs"].append({**each, **result, "wall_s": round(time.monotonic() - begun, 1)})
        _keep(folder / _FOUND, found["runs"][-1])
    found["derived"] = derived(found["runs"])
    found["wall_s"] = round(time.monotonic() - started, 1)
    return found


def _hindrance(launch: dict[str, Any], devices: int | None, left_s: float) -> str:
    """Return why a launch is not begun; empty where it is."""
    if devices is not None and launch["workers"] > devices:
        return f"needs {launch['workers']} devices, here are {devices}"
    if launch["launcher"] == "mpi" and launch["workers"] > 1:
        return "mpiexec starts its workers, which this program does not"
    return "no time was left" if left_s < _LEAST_S else ""


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    """Return what earlier runs kept, by run folder, but for what ended with an error; a cut line is none."""
    kept = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            launch = json.loads(line)
        except ValueError:
            continue
        if "error" not in launch:
            kept[launch["folder"]] = launch
    return kept


def _keep(path: Path, launch: dict[str, Any]) -> None:
    """Print the verdict on a launch, and keep it for another run."""
    print(f"{launch['folder']}: {verdict(launch)} ({launch['wall_s']:.0f} s)", file=sys.stderr, flush=True)
    with path.open("a") as file:
        file.write("\n" + json.dumps(launch))  # the line before may have been cut
        file.flush()
        os.fsync(file.fileno())


def verdict(launch: dict[str, Any]) -> str:
    """Return in a few words what a launch showed."""
    if "error" in launch:
        return f"failed: {launch['error']}"
    if launch["kind"] == "ablation":
        return f"{launch['blocks']} blocks, a step of {1e3 * launch['stages_s']['step']:.3g} ms"
    word = {True: "held", False: "did not hold", None: "undecided"}[launch["agrees"]]
    low, high = launch["interval"]
    return f"{word}: clock over plain loop {launch['clock_over_plain']:.3f} ({low:.3f} to {high:.3f})"


def derived(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return by framework what its runs in fp32 say of each other.

    ``breakdown_over_plain``
        The stage with all that a step on a batch in memory does, over the same step in a plain loop of another process.
    ``copying_over_link``
        What copying a batch adds to a step, over the seconds that its bytes take at the rate of large copies.
    ``exposed_s``
        What the exchange of two workers adds to a step.
    """
    found: dict[str, dict[str, float]] = {}
    for name in FRAMEWORKS:
        own = [
            each for each in runs if (each["framework"], each["precision"]) == (name, "fp32") and "error" not in each
        ]
        by_kind = {(each["kind"], each["workers"]): each for each in own}
        alone, apart, two = (by_kind.get(key, {}) for key in (("session", 1), ("ablation", 1), ("ablation", 2)))
        values = found.setdefault(name, {})
        if alone and "local" in apart.get("stages_s", {}):
            values["breakdown_over_plain"] = apart["stages_s"]["local"] / statistics.median(alone["plain_s"])
        if "h2d" in apart.get("added_s", {}) and alone.get("copied_bytes_per_s"):
            values["copying_over_link"] = apart["added_s"]["h2d"] * alone["copied_bytes_per_s"] / apart["copied_bytes"]
        if "exchange" in two.get("added_s", {}):
            values["exposed_s"] = two["added_s"]["exchange"]
    return {name: values for name, values in found.items() if values}


def _ask(arguments: list[str], folder: Path, limit_s: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"code": 124, "error": f"not finished after {limit_s:.0f} s"}
    error = done.stderr.strip().splitlines()[-1:] or [""]
    return {"code": done.returncode, "said": done.stdout.strip(), "error": error[0] if done.returncode else ""}


def _smi() -> str | None:
    question = "name,driver_version,power.limit,clocks.max.sm,mig.mode.current,memory.total"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={question}", "--format=csv,noheader"],  # noqa: S607 - the driver's
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip()


_CUPY = """
import cupy
for size in (64, 128, 256, 512, 1024):
    product = cupy.full((size, size), 1 + 2.0**-12, 'float32') @ cupy.eye(size, dtype='float32')
    print(size, float(product[0, 0]) == 1 + 2.0**-12, cupy.__version__, cupy.cuda.runtime.runtimeGetVersion())
"""


def _session(run_folder: Path, steps: int, share_s: float, limit_s: float) -> dict[str, Any]:
    program = str(Path(__file__).resolve())
    how = ["--steps", str(steps), "--seconds", str(_COMPARING * share_s)]
    said = _ask([program, "session", ".", *how], run_folder, limit_s)
    if said["code"]:
        return {"error": said["error"]}
    found: dict[str, Any] = json.loads(said["said"].splitlines()[-1])
    return found


def _ablation(run_folder: Path, workers: int, share_s: float, limit_s: float) -> dict[str, Any]:
    """Start the workers by hand, as docs/worker-protocol.md says, and read the stages of the first."""
    job = json.loads((run_folder / "job.json").read_text())
    job["schedule"]["seconds"] = min(job["schedule"]["seconds"], _APART * share_s)
    (run_folder / "job.json").write_text(json.dumps(job))
    sockets = [socket.create_server((_ADDRESS, 0)) for _ in range(1 + workers)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    shared = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("STEPTIME_", "PYTHON"))},
        "STEPTIME_WORKERS": str(workers),
        "STEPTIME_ROOT_ADDRESS": f"{_ADDRESS}:{ports[0]}",
        "STEPTIME_WORKER_ADDRESSES": ",".join(f"{_ADDRESS}:{port}" for port in ports[1:]),
        "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "start.py", "job.json"],
            cwd=run_folder,
            env={**shared, "STEPTIME_RANK": str(rank), "STEPTIME_LOCAL_RANK": str(rank)},
        )
        for rank in range(workers)
    ]
    deadline = time.monotonic() + limit_s
    try:
        for process in started:
            process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {limit_s:.0f} s"}
    finally:
        for process in started:
            process.kill()
            process.wait()
    records = [json.loads(line) for line in (run_folder / "worker-0.jsonl").read_text().splitlines()]
    kinds = {record["kind"]: record for record in records}
    if "error" in kinds:
        return {"error": kinds["error"]["message"]}
    return _phases(kinds["ablation"]["stages"], job)


def _phases(stages: dict[str, list[list[float]]], job: dict[str, Any]) -> dict[str, Any]:
    """Return the mean seconds of each stage, what each adds to the one before, and what is copied in a step.

    The standard error is that of the means of blocks, whose number is there too.
    """
    means = {name: statistics.mean(step for block in blocks for step in block) for name, blocks in stages.items()}
    nested = [name for name in ("forward", "backward", "local", "exchange", "h2d", "step") if name in means]
    added = {
        name: means[name] - (means[before] if before else 0.0)
        for before, name in zip(["", *nested], nested, strict=False)
    }
    values = 1
    for size in job["workload"]["input_shape"]:
        values *= size
    by_block = {name: [statistics.mean(block) for block in blocks] for name, blocks in stages.items()}
    return {
        "stages_s": means,
        "standard_error_s": {name: statistics.stdev(each) / math.sqrt(len(each)) for name, each in by_block.items()},
        "blocks": len(by_block["step"]),
        "added_s": added,
        "copied_bytes": job["batch_per_worker"] * (values + 8),
    }


def session(run_folder: Path, steps: int, seconds: float) -> dict[str, Any]:
    """Open one worker's session in this process, and return what its products, clock, steps and copies show.

    Args:
        run_folder: of the worker.
        steps: of each loop, or as many as ``seconds`` suffice for.
        seconds: for all loops together.
    """
    sys.path.insert(0, str(run_folder.resolve()))
    from steptime.worker import precision
    from steptime.worker.main import of_adapter
    from steptime.worker.process_context import ProcessContext
    from steptime.worker.timing import seconds_of_tick

    job = json.loads((run_folder / "job.json").read_text())
    precision.limit_libraries(job)
    framework = importlib.import_module(f"steptime.frameworks.{job['framework']}.adapter").FRAMEWORK
    opened = framework.open_session(of_adapter(job), ProcessContext(os.environ, str(run_folder.resolve())))
    found: dict[str, Any] = {"facts": opened.facts(), "probes": {}}
    whole = precision.probe_size(job["device"])
    users = [each for each in sys.modules.values() if getattr(each, "probe_size", None) is precision.probe_size]
    for size in SIZES:
        for module in users:
            vars(module)["probe_size"] = lambda _, size=size: whole._replace(matrix=size)
        found["probes"][size] = precision.computed_in(opened.probe_precision())
    clock = opened.clock()
    until = time.monotonic() + job["schedule"].get("warmup_seconds", 0.0)
    for number in range(10**6):
        opened.step()
        if number >= job["schedule"]["warmup_steps"] and time.monotonic() > until:
            break
    opened.wait()
    found["tick_s"] = seconds_of_tick(clock)
    step_s = _between_synchronisations(opened, FEWEST_STEPS)
    steps = max(FEWEST_STEPS, min(steps, int(seconds / (4 * GROUPS * step_s))))
    found |= {"steps": steps, **_compared(opened, clock, steps)}
    found["never_waits"] = _never_waits(opened, clock, job, steps)
    found["device_peak_bytes"] = opened.device_peak_bytes()
    found["copied_bytes_per_s"] = _copies(job)
    return found


def _compared(opened: Any, clock: Any, steps: int) -> dict[str, Any]:  # noqa: ANN401 - a Session of the worker half
    """Return the seconds of a step in a plain loop and by the clock, in turns, and what groups say of their ratio.

    A group is plain, timed, timed, plain or the other way round, so that a drift of the machine hits both alike.
    Beside it is the ratio of the processor time of this process, which other processes hardly change.
    """
    loops: dict[str, list[float]] = {"plain": [], "clock": []}
    used: dict[str, list[float]] = {"plain": [], "clock": []}
    for group in range(GROUPS):
        outer, inner = ("plain", "clock") if group % 2 else ("clock", "plain")
        for kind in (outer, inner, inner, outer):
            begun = time.process_time()
            took_s = _by_clock(opened, clock, steps) if kind == "clock" else _between_synchronisations(opened, steps)
            loops[kind].append(took_s)
            used[kind].append((time.process_time() - begun) / (steps + (kind == "clock")))
    ratio, low, high = _ratio(loops["clock"], loops["plain"])
    within, beyond = low >= 1.0 - CLOSE and high <= 1.0 + CLOSE, high < 1.0 - CLOSE or low > 1.0 + CLOSE
    return {
        "plain_s": loops["plain"],
        "clock_s": loops["clock"],
        "clock_over_plain": ratio,
        "interval": [low, high],
        "agrees": True if within else False if beyond else None,
        "processor_clock_over_plain": list(_ratio(used["clock"], used["plain"])),
        "processor_s": statistics.median(used["plain"]),
    }


def _ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios of ``GROUPS`` groups of two, and its 95 % interval by Student's t."""
    groups = range(0, len(ours), 2)
    logs = [math.log((ours[at] + ours[at + 1]) / (theirs[at] + theirs[at + 1])) for at in groups]
    middle, half = statistics.mean(logs), _STUDENT * statistics.stdev(logs) / math.sqrt(GROUPS)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _between_synchronisations(opened: Any, steps: int) -> float:  # noqa: ANN401 - as above
    opened.wait()
    started = time.monotonic()
    for _ in range(steps):
        opened.step()
    opened.wait()
    return (time.monotonic() - started) / steps


def _by_clock(opened: Any, clock: Any, steps: int) -> float:  # noqa: ANN401 - as above
    opened.step()
    clock.tick()
    for _ in range(steps):
        opened.step()
        clock.tick()
    ends = clock.drain()
    return float(ends[-1] - ends[0]) / steps


def _never_waits(opened: Any, clock: Any, job: dict[str, Any], steps: int) -> str | None:  # noqa: ANN401 - as above
    """Return "yes", or what torch says of a step that waits for its device; None where torch cannot say it."""
    if job["framework"] != "pytorch" or job["device"] != "cuda":
        return None
    import torch

    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(steps):
            opened.step()
            clock.tick()
    except RuntimeError as error:
        return str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        clock.drain()
    return "yes"


def _copies(job: dict[str, Any]) -> float | None:
    """Return the bytes per second of large copies from pinned memory to the device, by torch or JAX."""
    if job["device"] != "cuda":
        return None
    if job["framework"] == "pytorch":
        import torch

        pinned = torch.empty(_COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
        copy, wait = (lambda: pinned.to("cuda", non_blocking=True)), torch.cuda.synchronize
    elif job["framework"] == "jax":
        import jax
        import numpy as np

        host = np.zeros(_COPIED_BYTES, np.uint8)
        copy, wait = (lambda: jax.block_until_ready(jax.device_put(host))), (lambda: None)
    else:
        return None
    copy()
    wait()
    started = time.monotonic()
    for _ in range(_COPIES):
        copy()
    wait()
    return _COPIES * _COPIED_BYTES / (time.monotonic() - started)


def table(several: list[dict[str, Any]]) -> str:
    """Return JSONs of one machine, from an interpreter each, as the tables of docs/gpu.md."""
    runs = [each for found in several for each in found["runs"]]
    titles = ("clock over plain loop", "by processor time", "a tick", "waits for the device", "peak")
    lines = [f"| framework | precision | computed in | {' | '.join(titles)} |", "|---|---|---|---|---|---|---|---|"]
    for each in runs:
        if each["kind"] != "session":
            continue
        if "error" in each:
            lines.append(f"| {each['framework']} | {each['precision']} | {each['error']} | | | | | |")
            continue
        waits = {"yes": "never", None: "not known"}.get(each["never_waits"], each["never_waits"])
        peak = f"{each['device_peak_bytes'] / 1e9:.2f} GB" if each["device_peak_bytes"] else "not known"
        ratios = ([each["clock_over_plain"], *each["interval"]], each["processor_clock_over_plain"])
        clock = " | ".join(f"{middle:.3f} ({low:.3f} to {high:.3f})" for middle, low, high in ratios)
        clock += f" | {1e6 * each['tick_s']:.1f} µs"
        found = f"{each['probes']['1024']} | {clock} | {waits} | {peak}"
        lines.append(f"| {each['framework']} | {each['precision']} | {found} |")
    lines += ["", "| framework, workers | stage | seconds and standard error | adds |", "|---|---|---|---|"]
    for each in runs:
        who = f"{each['framework']}, {each['workers']}"
        if each["kind"] == "ablation" and "error" in each:
            lines.append(f"| {who} | {each['error']} | | |")
        for name, added in each.get("added_s", {}).items():
            mean = f"{each['stages_s'][name]:.6f} ± {each['standard_error_s'][name]:.6f}, {each['blocks']} blocks"
            lines.append(f"| {who} | {name} | {mean} | {added:+.6f} |")
    lines += ["", "| framework | from its runs in fp32 | value |", "|---|---|---|"]
    for name, values in (pair for found in several for pair in found["derived"].items()):
        lines += [f"| {name} | {key.replace('_', ' ')} | {value:.6g} |" for key, value in values.items()]
    left = [f"Not begun: {each}." for found in several for each in found["not_begun"]]
    loads = ", ".join(f"{found['load']:.1f}" for found in several)
    left.append(f"Processes that ran before, on average: {loads}.")
    return "\n".join([*lines, "", *left])


def main() -> None:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    preparing = verbs.add_parser("prepare")
    preparing.add_argument("folder", type=Path)
    preparing.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    preparing.add_argument("--workload", choices=["resnet50", "lenet5"], default="resnet50")
    preparing.add_argument("--batch", type=int, default=64)
    preparing.add_argument("--steps", type=int, default=STEPS)
    verbs.add_parser("run").add_argument("--seconds", type=float, default=540.0)
    one = verbs.add_parser("session")
    one.add_argument("folder", type=Path)
    one.add_argument("--steps", type=int, default=STEPS)
    one.add_argument("--seconds", type=float, default=60.0)
    verbs.add_parser("table").add_argument("files", type=Path, nargs="+")
    chosen = parser.parse_args()
    if chosen.verb == "prepare":
        prepare(chosen.folder, chosen.device, chosen.workload, chosen.batch, chosen.steps)
    elif chosen.verb == "run":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the launch that runs
        sys.stdout.write(json.dumps(run(Path(__file__).resolve().parent, chosen.seconds), indent=1) + "\n")
    elif chosen.verb == "session":
        sys.stdout.write(json.dumps(session(chosen.folder, chosen.steps, chosen.seconds)) + "\n")
        sys.stdout.flush()
        os._exit(0)  # threads of frameworks may abort an ordinary end
    else:
        sys.stdout.write(table([json.loads(file.read_text()) for file in chosen.files]) + "\n")


if __name__ == "__main__":
    main()
