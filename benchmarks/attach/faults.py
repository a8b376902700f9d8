"""Raise in the hooks of an attached script, again and again: the script's result must be the same each time.

`python benchmarks/attach/faults.py [--faults 10000]` runs the same training script, once without the hook and then with
a hook whose every part raises with the probability of that run, before its work, after it or half-way, and whose
patches stay although they failed. It writes faults.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from steptime.attach.folder import environment, write_hook
from steptime.runner.preparation import ready_interpreter

RESULT = Path(__file__).with_name("faults.json")
RATES = (1.0, 0.5, 0.1, 0.02)

SCRIPT = """
import copy, hashlib, pickle, sys
import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
samples = [(torch.randn(16), i % 4) for i in range(512)]
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
calls = 0
forward = net.forward

def counted(x):
    global calls
    calls += 1
    return forward(x)

net.forward = counted
for step, (x, y) in zip(range(int(sys.argv[1])), (batch for _ in range(1000) for batch in DataLoader(samples, 4))):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        with torch.no_grad():
            net(samples[0][0][None])
        torch.save(net.state_dict(), sys.argv[2])
del net.forward
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
print("RESULT", loss.item().hex(), digest, calls, flush=True)
"""

RAISING = """

def _planted(function, rate, chance, counted):
    import functools

    @functools.wraps(function)
    def raising(*arguments, **settings):
        if chance.random() < rate / 2:
            counted[0] += 1
            raise RuntimeError("planted before")
        result = function(*arguments, **settings)
        if chance.random() < rate / 2:
            counted[0] += 1
            raise RuntimeError("planted after")
        return result

    return raising


def _plant():
    import atexit
    import os
    import random

    rate, chance, counted = float(os.environ["PLANTED_RATE"]), random.Random(int(os.environ["PLANTED_SEED"])), [0]
    if __name__.endswith("patches"):
        global measure
        inner = measure

        def measure(owner, name, before, after, compiling=never):
            return inner(
                owner, name, _planted(before, rate, chance, counted), _planted(after, rate, chance, counted), compiling
            )

        fault = Patch.fault

        def kept(self, error):
            fault(self, error)
            self.on = True

        Patch.fault = kept
        Patch.remove = lambda self: None
    else:
        for name, value in list(vars(Recorder).items()):
            if callable(value) and not name.startswith("__") and name not in ("begin_again", "faulted"):
                setattr(Recorder, name, _planted(value, rate, chance, counted))

    def count():
        with open(os.environ["PLANTED_COUNT"], "a") as file:
            file.write("%d\\n" % counted[0])

    atexit.register(count)


_plant()
"""


def plant(hook: Path) -> None:
    """Make the copies of our code in ``hook`` raise as the environment says."""
    for name in ("patches", "recorder"):
        path = hook / "steptime_attach" / f"{name}.py"
        path.write_text(path.read_text(encoding="utf-8") + RAISING, encoding="utf-8")


def train(python: Path, folder: Path, steps: int, variables: Mapping[str, str]) -> tuple[int, str]:
    """Train ``steps`` steps; return the exit code and what was printed."""
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environ = {**os.environ, **variables}
    command = [str(python), str(script), str(steps), str(folder / "net.pt")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def faulty_run(python: Path, folder: Path, steps: int, rate: float, seed: int) -> tuple[tuple[int, str], int]:
    """Train with a hook that raises with probability ``rate``; return what ``train`` does, and the faults raised."""
    hook, count = write_hook(folder / "hook"), folder / "count"
    plant(hook)
    variables = environment(hook, folder / "record", lines=False, flops=False)
    variables |= {"PLANTED_RATE": str(rate), "PLANTED_SEED": str(seed), "PLANTED_COUNT": str(count)}
    ended = train(python, folder, steps, variables)
    faults = sum(map(int, count.read_text().split())) if count.exists() else 0
    return ended, faults


def main() -> None:
    """Raise as many faults as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    python = ready_interpreter("pytorch")
    if python is None:
        sys.exit("no environment for pytorch: run 'steptime env create pytorch'")
    with tempfile.TemporaryDirectory() as name:
        expected = train(python, Path(name), arguments.steps, {})
    runs = []
    while sum(run["faults"] for run in runs) < arguments.faults:
        rate, seed = RATES[len(runs) % len(RATES)], len(runs)
        with tempfile.TemporaryDirectory() as name:
            ended, faults = faulty_run(python, Path(name), arguments.steps, rate, seed)
        runs.append({"rate": rate, "seed": seed, "faults": faults, "same": ended == expected})
        print(runs[-1], "" if ended == expected else ended[1][-1000:], flush=True)
    total = sum(run["faults"] for run in runs)
    result = {"steps": arguments.steps, "faults": total, "harmed": sum(not run["same"] for run in runs), "runs": runs}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{total} faults in {len(runs)} runs, {result['harmed']} of which ended otherwise than without the hook")


if __name__ == "__main__":
    main()
