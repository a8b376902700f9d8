"""Race a framework's adapter against a plain, expert-written loop of the same framework.

::

    python benchmarks/adapters/race_plain.py pytorch lenet5 --batch 64 --workers 2 --blocks 8 --tuning tuned

``race.py`` says how blocks are run and ratios are formed. A plain loop is
``benchmarks/adapters/<framework>_plain.py`` and knows nothing of steptime::

    python <framework>_plain.py WORKLOAD BATCH STEPS WARMUP [RANK WORKERS ROOT_ADDRESS]

WORKLOAD is ``lenet5`` or ``resnet50@64`` (the image's side after the ``@``); data are synthetic and classes those
of the published workload. It prints one JSON line ``{"ends_s": [...], "cpu_s": ...}`` per worker. RANK is a number, or
``scheduler`` or ``server`` where the strategy has such processes; under MPI the last three are left out, since MPI
knows them. The variable ``RACE_TUNING`` says ``documented`` or ``tuned``: a loop writes what the framework's guide and
example do, or what an expert adds to it. The variable ``RACE_STRATEGY`` names the strategy, where a loop has several.
"""

import argparse
import json
import os
from pathlib import Path

from race import (
    Cost,
    Race,
    add_arguments,
    cost_of_workers,
    given_options,
    interleave,
    interpreter,
    outputs_of,
    start_on,
    synchronous_strategy,
)

from steptime.catalog.manifest import load_manifests
from steptime.launchers.base import free_ports
from steptime.launchers.process_env import inherited, pins, shared_variables
from steptime.launchers.table import MpiLauncher

_HERE = Path(__file__).parent


def main() -> None:
    """Run the blocks, print each, and print the summary as one JSON line."""
    arguments = _parse()
    manifest = load_manifests()[arguments.framework]
    race = Race(
        manifest=manifest,
        python=arguments.python or interpreter(arguments.framework),
        strategy=arguments.strategy or synchronous_strategy(manifest, arguments.workers),
        workload=arguments.workload,
        batch=arguments.batch,
        workers=arguments.workers,
        servers=arguments.servers,
        steps=arguments.steps,
        warmup=arguments.warmup,
        time_limit_s=arguments.time_limit,
        tuning=arguments.tuning,
        options=given_options(arguments.option),
    )
    print(json.dumps(interleave(race, plain_cost, "plain", arguments.blocks)))


def plain_cost(race: Race) -> Cost:
    """Launch the plain loop once on the same cores and return what a step cost."""
    request = race.request(_HERE)
    ports = free_ports(1 + request.workers + request.servers)
    shared = shared_variables(request, "", "127.0.0.1", ports)
    environment = {**inherited(os.environ), **{key: shared[key] for key in shared if not key.startswith("STEPTIME_")}}
    environment.update(RACE_TUNING=race.tuning, RACE_STRATEGY=race.strategy)
    script = [str(_HERE / f"{race.manifest.name}_plain.py"), race.workload]
    script += [str(number) for number in (race.batch, race.steps, race.warmup)]
    root = f"127.0.0.1:{ports[0]}"
    plans: list[tuple[list[str], tuple[int, ...]]] = []
    if race.manifest.strategies[race.strategy].launcher == "mpi":
        (mpiexec,) = MpiLauncher().plan(request, "", ports)
        until_program = mpiexec.argv[2 : mpiexec.argv.index("start.py")]  # without the tether in front
        plans.append(([*until_program, *script], ()))
    else:
        helping = ["scheduler"] * request.scheduler + ["server"] * request.servers
        for role in [*helping, *map(str, range(request.workers))]:
            tail = [role, str(request.workers), root] if request.workers > 1 or helping else []
            cores = pins(request)[int(role)] if role.isdigit() else ()
            plans.append(([str(request.interpreter), *script, *tail], cores))
    processes = [start_on(cores, argv, environment) for argv, cores in plans]
    outputs = outputs_of(processes, race.time_limit_s, "the plain loop")
    lines = [line for output in outputs for line in output.splitlines() if line.startswith("{")]
    return cost_of_workers([json.loads(line) for line in lines])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework")
    parser.add_argument("workload", help="lenet5, resnet50@64, …")
    parser.add_argument("--servers", type=int, default=0)
    parser.add_argument("--strategy", help="default: the first synchronous one that fits")
    add_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
