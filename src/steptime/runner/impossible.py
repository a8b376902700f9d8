"""Why no trial can be made of a combination: one rule after the other, each with its reason in words."""

from collections.abc import Callable

from steptime.frameworks.manifest import Manifest
from steptime.runner.combinations import Combination, Surroundings

SINGLE = "single"


def why_impossible(combination: Combination, around: Surroundings) -> str | None:
    """Say in words why no trial can be made of a combination; None where one can."""
    manifest = around.manifests[combination.framework]
    for rule in _RULES:
        reason = rule(combination, manifest, around)
        if reason:
            return reason
    return around.settings.of(combination.workload).reason


def _no_strategy(it: Combination, manifest: Manifest, _: Surroundings) -> str | None:
    if it.strategy in manifest.strategies:
        return None
    if it.strategy == "auto":
        return f"no synchronous strategy for {_workers(it.workers)}"
    return f"no strategy {it.strategy!r} (it has {', '.join(manifest.strategies)})"


def _wrong_workers(it: Combination, manifest: Manifest, _: Surroundings) -> str | None:
    support = manifest.strategies[it.strategy]
    if it.strategy == SINGLE and it.workers != 1:
        return f"{SINGLE!r} is one worker, not {it.workers}"
    if it.workers < support.min_workers:
        return f"{it.strategy!r} needs at least {_workers(support.min_workers)}, not {it.workers}"
    if support.max_workers is not None and it.workers > support.max_workers:
        return f"{it.strategy!r} takes at most {_workers(support.max_workers)}, not {it.workers}"
    return None


def _unsupported(it: Combination, manifest: Manifest, _: Surroundings) -> str | None:
    for what, value, known in (
        ("precision", it.precision, manifest.precisions),
        ("device", it.device, manifest.devices),
        ("loader", it.loader.name, manifest.loaders),
    ):
        if value not in known:
            return f"no {what} {value!r} (it has {', '.join(known)})"
    return None


def devices_of(manifest: Manifest, around: Surroundings) -> list[str]:
    """Return what a framework can train on here: in the user's interpreter, or in steptime's own environment."""
    return list(manifest.devices if manifest.name in around.interpreters else manifest.own_devices)


def _no_device(it: Combination, manifest: Manifest, around: Surroundings) -> str | None:
    if it.device not in devices_of(manifest, around):
        return (
            f"no {it.device!r} in the environment that steptime makes; name an interpreter of your own that has it: "
            f"environments: {{{it.framework}: {{kind: existing, python: /path/to/python}}}}"
        )
    if it.device != "cuda" or it.workers <= around.cuda_devices:
        return None
    if not around.cuda_devices:
        return "no CUDA device on this machine"
    return f"{_workers(it.workers)} need as many CUDA devices; this machine has {around.cuda_devices}"


def _no_data(it: Combination, _: Manifest, __: Surroundings) -> str | None:
    if it.loader.name == "synthetic" or it.workload.dataset is not None:
        return None
    return f"{it.workload.name} has no dataset for the loader {it.loader.name!r} to read"


def _wrong_launcher(it: Combination, manifest: Manifest, around: Surroundings) -> str | None:
    support = manifest.strategies[it.strategy]
    helpers = support.servers or support.scheduler
    if around.launcher == "local" and manifest.launcher_for(it.strategy, it.options) == "mpi":
        return f"{it.strategy!r} is started by the launcher 'mpi', not 'local'"
    if around.launcher == "mpi" and helpers:
        return f"{it.strategy!r} needs servers or a scheduler, which the launcher 'mpi' does not start"
    if around.launcher == "inline" and (manifest.environment != "core" or it.workers != 1 or helpers):
        return "the launcher 'inline' runs one worker in steptime's own interpreter"
    return None


def _too_few_hosts(it: Combination, _: Manifest, around: Surroundings) -> str | None:
    cluster = around.cluster
    if cluster is None or it.workers <= cluster.hosts * cluster.workers_per_host:
        return None
    room = cluster.hosts * cluster.workers_per_host
    return f"the cluster has room for {_workers(room)} on its hosts, not for {it.workers}"


def _uneven_batch(it: Combination, _: Manifest, __: Surroundings) -> str | None:
    if not it.batch_is_global or it.batch % it.workers == 0:
        return None
    return f"a global batch of {it.batch} cannot be shared equally by {_workers(it.workers)}"


_RULES: tuple[Callable[[Combination, Manifest, Surroundings], str | None], ...] = (
    _no_strategy,
    _wrong_workers,
    _unsupported,
    _no_device,
    _no_data,
    _wrong_launcher,
    _too_few_hosts,
    _uneven_batch,
)
"""Asked in this order; a later rule may rely on what an earlier one let pass."""


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
