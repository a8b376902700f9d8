"""The exact commands of a trial, before anything is started."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from steptime.environments.kinds import addresses, find_ready
from steptime.errors import LaunchError
from steptime.frameworks.manifest import Manifest
from steptime.launchers.request import Request
from steptime.launchers.table import launcher_named
from steptime.runner.preparation import environment_spec, usable_cores
from steptime.study.study import Study
from steptime.study.trial import Trial

_FIRST_PORT = 15_000


def exact_commands(trial: Trial, manifests: Mapping[str, Manifest], study: Study, results: Path) -> list[str]:
    """Return one shell line per process of ``trial``'s first launch, with its environment variables.

    The ports are examples: a launch takes free ones when it starts. An environment that does not exist yet is named
    by where it will be.
    """
    manifest = manifests[trial.framework]
    spec = environment_spec(manifest, study.environments.get(trial.framework))
    ready = find_ready(spec)
    if ready:
        interpreter = ready.interpreter
    else:
        planned = next(iter(addresses([spec])), Path(manifest.name))
        interpreter = planned / spec.program
    support = manifest.strategies[trial.strategy]
    request = Request(
        folder=results / "trials" / trial.id / "launch-0",
        interpreter=interpreter,
        workers=trial.workers,
        servers=trial.servers,
        colocated_servers=trial.server_placement == "colocated",
        scheduler=support.scheduler,
        threads=trial.threads,
        cores=usable_cores(),
        mpi=manifest.launcher_for(trial.strategy, trial.options) == "mpi",
        cluster=trial.cluster,
        time_limit_s=study.time_limit,
    )
    ports = range(_FIRST_PORT, _FIRST_PORT + 1 + trial.workers + trial.servers)
    try:
        processes = launcher_named(trial.launcher).plan(request, "RUN", ports)
    except LaunchError as error:
        return [f"# cannot be started: {error}"]
    return [
        " ".join([f"{name}={shlex.quote(value)}" for name, value in process.environment.items()])
        + " "
        + shlex.join(process.argv)
        for process in processes
    ]
