"""Kinds of training scripts, run with and without being attached: what was reached, found and changed.

`python benchmarks/attach/kinds.py [KIND …]` runs all or the named ones and merges them into kinds.json. Every kind is
run once without and once with the hook; planted causes are timed by the script's own clock in the attached run, and the
record must give each within 20 % of that. What was trained is compared to the bit where the kind repeats itself.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.attach.folder import environment, write_hook
from steptime.runner.preparation import ready_interpreter

HERE = Path(__file__).parent
RESULT = HERE / "kinds.json"
LIBRARIES = {
    "pytorch": (
        "transformers==5.24.0",
        "accelerate==1.15.0",
        "lightning==2.6.6",
        "webdataset==1.0.2",
        "torchdata==0.11.0",
    ),
    "jax": ("keras==3.15.1", "flax==0.12.8", "optax==0.2.8"),
    "pytorch-ray": ("ray[train]==2.60.0",),
    "pytorch-ultralytics": ("torchvision==0.28.0", "ultralytics==8.4.190"),
}
WITHIN = 0.2

Steps = list[dict[str, Any]]


def usual(steps: Steps, table: str, name: str) -> float:
    """Return the seconds that a region or gap would have in all ``steps`` if all were as the median one."""
    return statistics.median([step[table].get(name, 0) for step in steps] or [0]) * len(steps) / 1e9


def total(steps: Steps, table: str, name: str) -> float:
    """Return the seconds of a region or gap in all ``steps``."""
    return sum(step[table].get(name, 0) for step in steps) / 1e9


def saved(steps: Steps) -> float:
    """Return the seconds of checkpoints, with the collectives inside of them."""
    inside = [
        sums[2] for step in steps for name, sums in step.get("collectives", {}).items() if name.startswith("save:")
    ]
    return total(steps, "regions", "save") + sum(inside) / 1e9


def total_apart(steps: Steps) -> float:
    """Return the seconds of forwards without gradient that were apart."""
    return sum(step["apart"]["regions"].get("nograd", 0) for step in steps if "apart" in step) / 1e9


def apart(steps: Steps) -> float:
    """Return the seconds that were apart."""
    return sum(step["apart"]["end_ns"] - step["apart"]["begin_ns"] for step in steps if "apart" in step) / 1e9


def usual_sum(times: list[float], steps: int) -> float:
    """Return the sum of planted ``times`` if those of all steps were as of the median one."""
    of_a_step = max(1, len(times) // steps) if steps else 1
    sums = [sum(times[at : at + of_a_step]) for at in range(0, len(times) - of_a_step + 1, of_a_step)]
    return statistics.median(sums) * len(sums)


Measured = Callable[[Mapping[int, Steps]], float]
LOAD: tuple[str, str, int, Measured] = ("load", "load", 0, lambda ranks: usual(ranks[0], "regions", "input"))
SLOW: tuple[str, str, int, Measured] = (
    "slow forward",
    "forward",
    1,
    lambda ranks: usual(ranks[1], "regions", "forward"),
)
EVALUATED: tuple[str, str, int, Measured] = ("evaluation", "evaluation", 0, lambda ranks: apart(ranks[0]))
SAVED: tuple[str, str, int, Measured] = ("save", "checkpoint", 0, lambda ranks: saved(ranks[0]))


@dataclass(frozen=True)
class Kind:
    """A kind of script: how it is started, and what must be found."""

    name: str
    processes: int = 2
    causes: tuple[tuple[str, str, int, Measured], ...] = (LOAD, SLOW, EVALUATED, SAVED)
    flags: frozenset[str] = frozenset()
    script: str = "loops"
    environment: str = "pytorch"
    launch: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    steps: int = 24


def gap(name: str, cause: str = "load", rank: int = 0) -> tuple[str, str, int, Measured]:
    """Return the check that a gap holds a planted cause."""
    return (
        f"gap {name}" + (f" of rank {rank}" if rank else ""),
        cause,
        rank,
        lambda ranks: usual(ranks[rank], "gaps", name),
    )


def region(name: str, cause: str, rank: int = 0) -> tuple[str, str, int, Measured]:
    """Return the check that a region holds a planted cause, and little else."""
    return name, cause, rank, lambda ranks: usual(ranks[rank], "regions", name)


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "{port}")
ELASTIC = (
    *("-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"),
    *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:{port}"),
)
ACCELERATE = (
    *("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"),
    *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "{port}"),
)
UNEVEN: tuple[str, str, int, Measured] = (
    "gap of three steps of four",
    "load",
    0,
    lambda ranks: total(ranks[0], "gaps", "update>forward"),
)
NO_LOADER = frozenset({"no_loader"})
TRAINED = (LOAD, SLOW)
LIBRARY = {"script": "libraries", "environment": "pytorch_libraries"}
RAY = {"script": "libraries", "environment": "pytorch-ray_libraries"}
ULTRALYTICS = {"script": "libraries", "environment": "pytorch-ultralytics_libraries"}
JAX = {"script": "compiled", "environment": "jax_libraries"}
TENSORFLOW = {"script": "compiled", "environment": "tensorflow"}
MPIEXEC = ("{mpiexec}", "-n", "2", "{python}", "{script}")
FIT = ("{script}", "keras")
ROUND = 4


KINDS = (
    Kind("ddp"),
    Kind("accumulation"),
    Kind("nanogpt", causes=(gap("forward>backward"), SLOW, EVALUATED, SAVED), flags=NO_LOADER),
    Kind("iterable"),
    Kind("workers", causes=(SLOW, EVALUATED, SAVED)),
    Kind("checkpointing"),
    Kind("reentrant"),
    Kind(
        "two_loaders",
        1,
        (("load of both", "load+second load", 0, lambda ranks: usual(ranks[0], "regions", "input")),),
        steps=25,
    ),
    Kind("compiled", causes=(LOAD, EVALUATED, SAVED)),
    Kind("compiled_step", 1, (LOAD,), frozenset({"blind"}), steps=17),
    Kind("fsdp2", causes=(LOAD, EVALUATED)),
    Kind("tensor_parallel", causes=(LOAD,)),
    Kind("pipeline", causes=(LOAD,), steps=25),
    Kind("gan", 1, (LOAD, region("forward", "forward")), steps=25),
    Kind("gan_without_loader", 1, (UNEVEN,), NO_LOADER, steps=ROUND * 24),
    Kind(
        "teacher",
        1,
        (
            LOAD,
            (
                "nograd",
                "slow without gradient",
                0,
                lambda ranks: total(ranks[0], "regions", "nograd") + total_apart(ranks[0]),
            ),
            EVALUATED,
        ),
        steps=25,
    ),
    Kind("reinforcement", 1, (("rollouts", "rollout", 0, lambda ranks: apart(ranks[0])),), NO_LOADER, steps=60),
    Kind("executed", 1, (LOAD, EVALUATED, SAVED)),
    Kind("spawned", 0),
    Kind("forked", 0),
    Kind("module", launch=(*TORCHRUN, "-m", "loops", "ddp")),
    Kind("without_site", 1, (LOAD, EVALUATED, SAVED), launch=("-S", "{script}", "ddp")),
    Kind("without_autoload", 1, (LOAD, EVALUATED, SAVED), variables=(("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"),)),
    # Else torch 2.13 keeps the store of the first attempt, whose addresses of dead processes the second may read.
    Kind(
        "crash",
        launch=(*ELASTIC, "{script}", "crash"),
        variables=(("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),),
    ),
    Kind("zero1", script="libraries", environment="deepspeed"),
    Kind("zero2", script="libraries", environment="deepspeed"),
    Kind("zero3", script="libraries", environment="deepspeed"),
    Kind(
        "horovod",
        script="libraries",
        environment="horovod_pytorch",
        launch=("-m", "horovod.runner.launch", "-np", "2", "--gloo", "{python}", "{script}", "horovod"),
    ),
    Kind("mpiexec", launch=("{mpiexec}", "-n", "2", "{python}", "{script}", "ddp")),
    Kind("trainer", causes=TRAINED, **LIBRARY),
    # An evaluation that is left by `break` has accelerate synchronise every micro-step: 36 updates, not 24.
    Kind("accelerated", causes=(LOAD, SLOW, EVALUATED), steps=36, **LIBRARY),
    Kind("accelerate_launch", launch=(*ACCELERATE, "{script}", "accelerated"), causes=TRAINED, steps=36, **LIBRARY),
    Kind("lightning", 1, (LOAD,), **LIBRARY),
    Kind("lightning_ddp", 0, TRAINED, **LIBRARY),
    Kind("lightning_spawn", 0, TRAINED, **LIBRARY),
    Kind("lightning_fork", 0, TRAINED, **LIBRARY),
    Kind("stateful", **LIBRARY),
    Kind("webdataset", **LIBRARY),
    Kind("ultralytics", 1, (LOAD, region("forward", "slow"), EVALUATED, SAVED), **ULTRALYTICS),
    # Ray ends its workers without leaving Python.
    Kind("ray_train", 0, steps=23, **RAY),
    Kind("dali", 1, (LOAD,), script="libraries", environment="pytorch-dali", steps=25),
    Kind("jax", 1, (gap("call>call"), EVALUATED), NO_LOADER, **JAX),
    Kind(
        "jax_of_two",
        causes=(gap("call>call"), gap("call>call", "load+slow", 1), EVALUATED),
        flags=NO_LOADER,
        launch=(*MPIEXEC, "jax"),
        **JAX,
    ),
    Kind("flax", 1, (gap("call>call"), EVALUATED), NO_LOADER, **JAX),
    Kind("keras_jax", 1, (LOAD, EVALUATED), launch=FIT, variables=(("KERAS_BACKEND", "jax"),), steps=48, **JAX),
    Kind(
        "keras_tensorflow",
        1,
        (("load in the call", "load", 0, lambda ranks: usual(ranks[0], "regions", "call")), EVALUATED),
        NO_LOADER,
        launch=FIT,
        variables=(("KERAS_BACKEND", "tensorflow"),),
        steps=48,
        **TENSORFLOW,
    ),
    Kind("tensorflow", 1, (LOAD, EVALUATED), **TENSORFLOW),
    Kind("chainer", 1, (LOAD, EVALUATED, SAVED), script="asked", environment="chainer"),
    Kind("chainer_trainer", 1, (LOAD,), script="asked", environment="chainer"),
    Kind("chainermn", launch=(*MPIEXEC, "chainer"), steps=23, script="asked", environment="chainer"),
    Kind("mxnet", 1, (LOAD, EVALUATED), script="asked", environment="mxnet"),
    # Its loader reads ahead in a thread, while the step computes.
    Kind("paddle", 1, (EVALUATED, SAVED), script="asked", environment="paddle"),
)


def libraries_python(name: str) -> Path:
    """Return the Python of an environment with libraries over that of a framework, made when there is none."""
    libraries = LIBRARIES[name]
    framework = name.partition("-")[0]
    base = ready_interpreter(framework)
    if base is None:
        sys.exit(f"no environment for {framework}: run 'steptime env create {framework}'")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "steptime"
    folder = cache / f"attached-libraries-{name}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
        packages = next(folder.glob("lib/python*/site-packages"))
        (packages / "framework.pth").write_text(f"{next(base.parents[1].glob('lib/python*/site-packages'))}\n")
        subprocess.run([python, "-m", "pip", "install", "-q", *libraries], check=True)
        (folder / "ready").write_text("\n".join(libraries))
    return python


def python_of(kind: Kind) -> Path | None:
    """Return the Python of the environment of ``kind``, None if there is none."""
    if kind.environment.endswith("_libraries"):
        return libraries_python(kind.environment.removesuffix("_libraries"))
    name, _, loader = kind.environment.partition("-")
    return ready_interpreter(name, loader=loader or "synthetic")


def command_of(kind: Kind, python: Path) -> list[str]:
    """Return the command that starts ``kind``."""
    script = str(HERE / "scripts" / f"{kind.script}.py")
    known = {"script": script, "python": str(python), "port": str(random.randint(20000, 29000))}  # noqa: S311 - a port
    known["mpiexec"] = shutil.which("mpiexec.mpich") or shutil.which("mpiexec") or ""
    name = {"executed": "executed", "without_autoload": "ddp"}.get(kind.name, kind.name)
    launch = kind.launch or ((*TORCHRUN, "{script}", name) if kind.processes == 2 else ("{script}", name))
    words = [word.format(**known) for word in launch]
    return words if launch[0] == "{mpiexec}" else [str(python), *words]


def run(kind: Kind, python: Path, out: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """Run ``kind`` once; return its exit code and its output."""
    own = {"OUT": str(out), "PORT": str(random.randint(20000, 29000)), "OMP_NUM_THREADS": "1"}  # noqa: S311 - a port
    own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": own["PORT"]} if kind.name == "mpiexec" else {}
    paths = [variables.get("PYTHONPATH", ""), str(HERE / "scripts")]
    # -S knows no site-packages.
    paths += [str(next(python.parents[1].glob("lib/python*/site-packages")))] if "-S" in kind.launch else []
    own["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    out.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, **variables, **own, **dict(kind.variables)}
    done = subprocess.run(
        command_of(kind, python), env=environ, cwd=out, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def records(folder: Path) -> list[list[dict[str, Any]]]:
    """Return the lines of every process."""
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(folder.glob("*.jsonl"))]


def rank_of(lines: list[dict[str, Any]]) -> int:
    """Return the rank of a process, 0 where it has none."""
    said = [line["rank"] for line in lines if line["kind"] == "rank"]
    return int(said[-1] if said else lines[0]["environment"].get("RANK", "0"))


def judge(kind: Kind, base: Path, attached: Path) -> dict[str, Any]:
    """Return what the records in ``attached``/record say beside what the scripts themselves said."""
    processes = records(attached / "record")
    attempts = [int(lines[0]["environment"].get("TORCHELASTIC_RESTART_COUNT", "0")) for lines in processes]
    last = [lines for lines, attempt in zip(processes, attempts, strict=True) if attempt == max(attempts)]
    ranks = {
        rank_of(lines): [line for line in lines if line["kind"] == "step"] for line_set in [last] for lines in line_set
    }
    said = {int(path.stem.split("-")[1]): json.loads(path.read_text()) for path in attached.glob("said-*.json")}
    before = {int(path.stem.split("-")[1]): json.loads(path.read_text()) for path in base.glob("said-*.json")}
    found = {}
    for label, cause, rank, measured in kind.causes:
        lasted = [said.get(rank, {}).get("planted", {}).get(name, []) for name in cause.split("+")]
        planted = sum(usual_sum(times, len(ranks.get(rank, []))) for times in lasted if times)
        value = measured(ranks) if rank in ranks else None
        share = value / planted if value is not None and planted else None
        found[label] = {"planted_s": planted, "measured_s": value, "share": share}
    flags = sorted({flag for steps in ranks.values() for step in steps for flag in step.get("flags", [])})
    costs = sorted(step["cost_ns"] for steps in ranks.values() for step in steps[1:])
    return {
        "processes": len(processes),
        "ranks": sorted(ranks),
        "attempts": max(attempts, default=0) + 1,
        "steps": {rank: len(steps) for rank, steps in sorted(ranks.items())},
        "steps_expected": kind.steps,
        "found": found,
        "all_found": all(item["share"] and abs(item["share"] - 1) <= WITHIN for item in found.values()),
        "equal_to_the_bit": {r: said[r]["result"] for r in said} == {r: before[r]["result"] for r in before},
        "flags": flags,
        "flags_as_expected": kind.flags <= set(flags),
        "faults": [line for lines in processes for line in lines if line["kind"] == "fault"],
        "median_cost_of_closing_us": costs[len(costs) // 2] / 1e3 if costs else None,
    }


def main() -> None:
    """Run the kinds that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *[kind.name for kind in KINDS]])
    asked = parser.parse_args().kinds
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    known = {kind.name: kind for kind in KINDS}
    for kind in [known[name] for name in asked] if asked else KINDS:
        python = python_of(kind)
        if python is None:
            print(f"{kind.name}: no environment {kind.environment}")
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            begin = time.monotonic()
            try:
                code, _ = run(kind, python, folder / "base", {})
                hook = write_hook(folder / "hook")
                variables = environment(hook, folder / "attached" / "record", lines=False, flops=False)
                attached_code, output = run(kind, python, folder / "attached", variables)
                result = {"exit_codes": [code, attached_code], **judge(kind, folder / "base", folder / "attached")}
            except (subprocess.TimeoutExpired, ValueError, OSError) as error:
                result, output, attached_code = {"error": str(error)[:500]}, "", 0
            if attached_code:
                print(output[-3000:])
        result["wall_s"] = time.monotonic() - begin
        results[kind.name] = result
        RESULT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        shares = {label: round(item["share"] or 0, 2) for label, item in result.get("found", {}).items()}
        brief = [result.get(key) for key in ("error", "exit_codes", "ranks", "steps", "equal_to_the_bit", "flags")]
        print(kind.name, *brief, shares, "faults", len(result.get("faults", [])), flush=True)


if __name__ == "__main__":
    main()
