"""The rules by which no trial can be made of a combination; each gives its reason."""

from collections.abc import Callable, Mapping

from steptime.catalog.accelerators import Version
from steptime.catalog.choices import OWN, loader_named, strategy_named
from steptime.catalog.found_site import Site
from steptime.catalog.manifest import Manifest, TrainingSetting
from steptime.catalog.workloads.kinds import OF_TRANSFORMERS
from steptime.catalog.workloads.own_module import MODULE_KINDS, other_kind
from steptime.expansion.combinations import Combination, DatasetFacts, ExpansionContext, has_classes, has_layer


def why_impossible(combination: Combination, context: ExpansionContext) -> str | None:
    """Say why no trial can be made of a combination; None if one can."""
    manifest = context.manifests[combination.framework]
    for rule in _RULES:
        reason = rule(combination, manifest, context)
        if reason:
            return reason
    return context.shapes.of(combination.workload).reason


def _no_strategy(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    if combination.strategy in manifest.strategies:
        return None
    if combination.strategy == "auto":
        return f"no synchronous strategy for {_workers(combination.workers)}"
    return f"no strategy {combination.strategy!r} (it has {', '.join(manifest.strategies)})"


def _wrong_workers(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    support = manifest.strategies[combination.strategy]
    if strategy_named(combination.strategy).single_baseline and combination.workers != 1:
        return f"{combination.strategy!r} is one worker, not {combination.workers}"
    if combination.workers < support.min_workers:
        return f"{combination.strategy!r} needs at least {_workers(support.min_workers)}, not {combination.workers}"
    if support.max_workers is not None and combination.workers > support.max_workers:
        return f"{combination.strategy!r} takes at most {_workers(support.max_workers)}, not {combination.workers}"
    return None


def _no_own_module(combination: Combination, manifest: Manifest, context: ExpansionContext) -> str | None:
    name = combination.workload.name
    if combination.workload.module is None:
        return None
    kind, own = manifest.own_modules, context.shapes.of(combination.workload).own
    if kind is None:
        return f"cannot train {name}: {manifest.title} takes no module of your own"
    if own is not None and (seen := other_kind(own, kind)):
        return f"cannot train {name}: {seen}, and {manifest.title} trains {MODULE_KINDS[kind].title}"
    if why := manifest.strategies[combination.strategy].without_own_modules:
        return f"{combination.strategy!r} cannot train {name}: {why}"
    return None


def _unfit_for_own_module(combination: Combination, _: Manifest, __: ExpansionContext) -> str | None:
    name = combination.workload.name
    if combination.workload.module is None:
        return None
    if combination.training is not None:
        return f"{name} has no validation set, which training until it is over needs"
    if combination.accumulation > 1:
        return f"the batches of {name} are not cut into micro-batches; leave accumulation out"
    return None


def _no_loader(combination: Combination, manifest: Manifest, context: ExpansionContext) -> str | None:
    name = combination.loader
    if name == OWN.name:
        return None
    if name not in manifest.loaders:
        because = f": {why}" if (why := manifest.without_loaders.get(name)) else ""
        return f"no loader {name!r} (it has {', '.join(manifest.loaders)}){because}"
    own = manifest.loader_environments.get(name)
    if own and combination.device == "cuda" and manifest.name not in context.interpreters:
        build = manifest.cuda_build(context.accelerators)
        if build and build.requirements not in own.cuda_requirements:
            return f"no environment with the loader {name!r} for CUDA {build.toolkit}"
    return None


def can_use_cuda(manifest: Manifest, context: ExpansionContext) -> bool:
    """Whether a framework has CUDA here: in the user's interpreter, or in an environment that steptime makes."""
    if manifest.name in context.interpreters:
        return "cuda" in manifest.devices
    return manifest.cuda_build(context.accelerators) is not None


def _no_device(combination: Combination, manifest: Manifest, context: ExpansionContext) -> str | None:
    """The reason is the same whether ``cuda`` was asked for or is what ``auto`` means for the whole study."""
    if combination.device not in manifest.devices:
        because = f": {manifest.without_cuda}" if manifest.without_cuda else ""
        return f"no device {combination.device!r} (it has {', '.join(manifest.devices)}){because}"
    if combination.device != "cuda":
        return None
    if context.site is None and not len(context.accelerators):
        return "no CUDA device on this machine"
    if not can_use_cuda(manifest, context):
        return (
            f"{manifest.no_cuda_reason(context.accelerators)}; it is not raced on processors against GPUs: set "
            "device=cpu for all, or name an interpreter of your own that has CUDA: "
            f"environments: {{{combination.framework}: {{kind: existing, python: /path/to/python}}}}"
        )
    if context.site is None and combination.workers > len(context.accelerators):
        have = len(context.accelerators)
        return f"{_workers(combination.workers)} need as many CUDA devices; this machine has {have}"
    return None


def _emulated_device(combination: Combination, _: Manifest, context: ExpansionContext) -> str | None:
    if combination.device != "cuda" or context.launcher != "emulated":
        return None
    return "the launcher 'emulated' limits sockets, and CUDA devices of one machine exchange gradients without any"


_NEEDED_CAPABILITY: Mapping[str, tuple[Version, str]] = {
    "tf32": ((8, 0), "TF32 is a format of NVIDIA's tensor cores from compute capability 8.0 on"),
    "bf16": ((8, 0), "CUDA devices compute in bfloat16 from compute capability 8.0 on"),
    "fp16": ((7, 0), "CUDA devices have fast products of half precision from compute capability 7.0 on"),
}


def _no_precision(combination: Combination, manifest: Manifest, context: ExpansionContext) -> str | None:
    precision, device = combination.precision, combination.device
    known = manifest.precisions_on(device)
    if precision not in known:
        because = f": {_NEEDED_CAPABILITY[precision][1]}" if device == "cpu" and precision in {"tf32", "fp16"} else ""
        because = f": {why}" if (why := manifest.without_precisions.get(precision)) else because
        return f"no precision {precision!r} (it has {', '.join(known)}){because}"
    if precision in manifest.strategies[combination.strategy].without_precisions:
        return f"{combination.strategy!r} has no precision {precision!r}"
    if device == "cuda" and precision in _NEEDED_CAPABILITY:
        least, fact = _NEEDED_CAPABILITY[precision]
        if any(each < least for each in context.accelerators.capabilities):
            return f"no precision {precision!r} on {context.accelerators.place}'s devices: {fact}"
    return None


def _no_optimizer(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    name = combination.optimizer.name
    if name not in manifest.optimizers:
        return f"no optimizer {name!r} (it has {', '.join(manifest.optimizers)})"
    if name in manifest.strategies[combination.strategy].without_optimizers:
        return f"{combination.strategy!r} has no optimizer {name!r}"
    return None


def _no_training_setting(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    optimizer = combination.optimizer
    wanted: dict[TrainingSetting, bool] = {
        "decayed": optimizer.decayed != "all",
        "clip_norm": optimizer.clip_norm is not None,
        "accumulation": combination.accumulation > 1,
    }
    reasons = (manifest.without_training_setting(name, combination.strategy) for name, asked in wanted.items() if asked)
    return next(filter(None, reasons), None)


def _no_training(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    if combination.training is None:
        return None
    if not manifest.learning:
        return "its sessions cannot change the learning rate and evaluate, which training until it is over needs"
    if not manifest.strategies[combination.strategy].learning:
        return f"{combination.strategy!r} cannot train until it is over: its sessions cannot evaluate"
    if loader_named(combination.loader).form is None:
        return "synthetic samples have nothing to learn; training needs a workload with a dataset"
    return None


def _wrong_training(combination: Combination, _: Manifest, __: ExpansionContext) -> str | None:
    training = combination.training
    if training is None:
        return None
    if training.warmup_epochs >= training.epochs:
        return f"a warm-up of {training.warmup_epochs} epochs leaves nothing of {training.epochs}"
    if training.warmup_epochs and training.rate_schedule.name == "one_cycle":
        return "the learning-rate schedule one_cycle has a warm-up of its own"
    if training.target_accuracy is not None and not has_classes(combination.workload):
        return f"{combination.workload.name} has no classes, of which target_accuracy could be a share"
    return None


def _no_transformers(combination: Combination, manifest: Manifest, _: ExpansionContext) -> str | None:
    if not manifest.without_transformers or not has_layer(combination.workload, OF_TRANSFORMERS):
        return None
    return f"cannot train {combination.workload.name}: {manifest.without_transformers}"


def _no_data(combination: Combination, _: Manifest, context: ExpansionContext) -> str | None:
    loader, dataset = loader_named(combination.loader), combination.workload.dataset
    if loader.form is None:
        return None
    if dataset is None:
        return f"{combination.workload.name} has no dataset for the loader {loader.name!r} to read"
    facts = context.shapes.datasets.get(dataset, DatasetFacts())
    if not (loader.reads_tokens if facts.of_tokens else loader.reads_arrays or facts.shape is None):
        return f"the loader {loader.name!r} reads files of images, and {dataset} is one array in memory"
    return None


def _wrong_launcher(combination: Combination, manifest: Manifest, context: ExpansionContext) -> str | None:
    support = manifest.strategies[combination.strategy]
    helpers = strategy_named(combination.strategy).servers or support.scheduler
    if context.launcher == "local" and manifest.launcher_for(combination.strategy, combination.options) == "mpi":
        return f"{combination.strategy!r} is started by the launcher 'mpi', not 'local'"
    if context.launcher == "mpi" and helpers:
        return f"{combination.strategy!r} needs servers or a scheduler, which the launcher 'mpi' does not start"
    if context.launcher == "inline" and (manifest.environment != "core" or combination.workers != 1 or helpers):
        return "the launcher 'inline' runs one worker in steptime's own interpreter"
    name = combination.given["environment_name"]
    if context.launcher == "inline" and (name or context.container_of(combination.framework, name)):
        other = "an environment that the study names" if name else "a container"
        return f"the launcher 'inline' runs in steptime's own process, and its environment is {other}"
    if context.launcher == "inline" and combination.environment_variables:
        return (
            "the launcher 'inline' runs in steptime's own process, whose environment variables cannot be set any more"
        )
    return None


def _too_few_hosts(combination: Combination, _: Manifest, context: ExpansionContext) -> str | None:
    cluster = combination.cluster
    if context.site is not None:
        return _beyond_site(combination, context.site, context)
    if cluster is None or combination.workers <= cluster.hosts * cluster.workers_per_host:
        return None
    most = cluster.hosts * cluster.workers_per_host
    return f"the cluster has room for {_workers(most)} on its hosts, not for {combination.workers}"


def _beyond_site(combination: Combination, site: Site, context: ExpansionContext) -> str | None:
    needed = combination.cluster_in(context)
    if needed is not None and len(needed.hosts) > len(site.hosts):
        servers = f" and {combination.servers} servers of their own" if combination.server_placement == "own" else ""
        hint = "; server_placement=colocated puts servers on hosts of workers" if servers else ""
        return (
            f"{_workers(combination.workers)}{servers} need {len(needed.hosts)} hosts with {site.workers_per_host} "
            f"workers each; there are {len(site.hosts)}{hint}"
        )
    sharing, gpus = min(site.workers_per_host, combination.workers), site.gpus_per_host
    if combination.device == "cuda" and gpus is not None and sharing > gpus:
        return (
            f"{_workers(sharing)} of a host need as many GPUs there; hosts have {gpus}: set hosts.gpus_per_host, "
            "hosts.workers_per_host or device=cpu"
        )
    return None


def _uneven_parts(combination: Combination, _: Manifest, __: ExpansionContext) -> str | None:
    parts, batch = combination.accumulation, combination.batch_per_worker
    if parts > 1 and combination.workload.module is not None:
        return f"accumulation {parts} divides batches, and {combination.workload.name} takes those of its loader whole"
    if parts > 1 and has_layer(combination.workload, {"batch_norm"}):
        return (
            f"accumulation {parts} changes what {combination.workload.name} learns: batch normalisation would take its "
            "statistics from each micro-batch, and not from the batch of the other trials"
        )
    return f"a batch per worker of {batch:g} has no {parts} equal micro-batches" if batch % parts else None


def _uneven_batch(combination: Combination, _: Manifest, __: ExpansionContext) -> str | None:
    if not combination.batch_is_global or combination.batch % combination.workers == 0:
        return None
    return f"a global batch of {combination.batch} cannot be shared equally by {_workers(combination.workers)}"


_RULES: tuple[Callable[[Combination, Manifest, ExpansionContext], str | None], ...] = (
    _no_strategy,
    _wrong_workers,
    _no_own_module,
    _unfit_for_own_module,
    _no_loader,
    _no_device,
    _emulated_device,
    _no_precision,
    _no_optimizer,
    _no_training_setting,
    _no_transformers,
    _no_data,
    _no_training,
    _wrong_training,
    _wrong_launcher,
    _too_few_hosts,
    _uneven_batch,
    _uneven_parts,
)
"""Asked in this order; a later rule may rely on what an earlier one let pass."""


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
