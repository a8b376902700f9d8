"""The configurations that the programs of this folder check: every strategy of every framework that is installed."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import Manifest, load_manifests
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.options import Tuning
from steptime.catalog.workloads.layers import Network, Workload
from steptime.datasets.builtins import BUILTINS
from steptime.equivalence.check import CheckCache, Checker, EquivalenceCheck
from steptime.equivalence.loaders import LoaderInput, loader_cases
from steptime.execution.executor import Executor
from steptime.execution.progress import Silent
from steptime.results.equivalence_records import EquivalenceResult
from steptime.runner.preparation import (
    environment_spec,
    loader_of,
    prepare_datasets,
    prepare_environments,
    prepare_stored_form,
    ready_interpreter,
    reference_loader_of,
)
from steptime.study.axis import REFERENCE
from steptime.study.trial import Trial

SMALL_BLOCKS = {"block_momentum": {"block_size": 48}}
"""Options by strategy, of which the defaults are too large for a check."""


def configurations(
    frameworks: Sequence[str], workers: Sequence[int], workload: Workload, tiers: Sequence[Tuning] = ("documented",)
) -> Iterator[Trial]:
    """Yield a trial for every strategy of the frameworks with these numbers of workers, where it takes them.

    Of several ``tiers``, each whose options differ from those of the tiers before.
    """
    manifests = load_manifests()
    for framework in frameworks:
        for strategy, support in manifests[framework].strategies.items():
            for count in workers:
                if support.min_workers <= count <= (support.max_workers or count):
                    found = (trial_of(manifests[framework], strategy, workload, count, tier) for tier in tiers)
                    yield from {each.id: each for each in found}.values()


def small_workload(classes: int = 10) -> Workload:
    """Return a network with padding and dropout that every framework trains in no time."""
    net = Network((3, 12, 12))
    x = net.relu("relu1", net.conv2d("conv1", net.input, 8, 3, padding=1))
    x = net.flatten("flatten", net.max_pool("pool1", x, 2, stride=2))
    x = net.dropout("dropout", net.relu("relu2", net.linear("fc1", x, 32)), 0.5)
    net.linear("fc2", x, classes)
    return net.finish("small", classes=classes)


def small_transformer() -> Workload:
    """Return a causal network over tokens whose embedding is its head too."""
    net = Network((12,))
    x = net.positions("positions", net.embedding("embedding", net.input, 24, 16))
    norm = net.layer_norm("norm1", x)
    attended = net.attention("attention", net.linear("qkv", norm, 48), 2, causal=True)
    x = net.add("add", [x, net.linear("projection", attended, 16)])
    wide = net.gelu("gelu", net.linear("mlp1", net.layer_norm("norm2", x), 32), approximate=True)
    x = net.layer_norm("norm3", net.add("add2", [x, net.linear("mlp2", wide, 16)]))
    net.unembedding("head", x, "embedding")
    return net.finish("small_transformer", classes=24, loss="next_token_cross_entropy")


def small_llama() -> Workload:
    """Return a causal network over tokens with rotary positions, in which three heads share a head of keys."""
    net = Network((12,))
    x = net.embedding("embedding", net.input, 24, 24)
    qkv = net.linear("qkv", net.rms_norm("norm1", x), 40, bias=False)
    attended = net.attention("attention", qkv, 6, causal=True, key_value_heads=2, rotary_base=100.0)
    x = net.add("add", [x, net.linear("projection", attended, 24, bias=False)])
    hidden = net.swiglu("swiglu", net.linear("gate_up", net.rms_norm("norm2", x), 32, bias=False))
    x = net.rms_norm("norm3", net.add("add2", [x, net.linear("down", hidden, 24, bias=False)]))
    net.linear("head", x, 24, bias=False)
    return net.finish("small_llama", classes=24, loss="next_token_cross_entropy")


def trial_of(manifest: Manifest, strategy: str, workload: Workload, workers: int, tier: Tuning = "documented") -> Trial:
    """Return a trial with the framework's options in a tier; where they are the documented ones, it is documented."""
    options = manifest.tier_options(tier, strategy, "cpu")
    tuned = options != manifest.tier_options("documented", strategy, "cpu")
    servers = int(STRATEGIES[strategy].servers)
    return Trial(
        framework=manifest.name,
        strategy=strategy,
        workload=workload.name,
        input_shape=workload.input_shape,
        classes=workload.classes,
        dataset=None,
        loader="synthetic",
        device="cpu",
        precision="fp32",
        workers=workers,
        servers=servers,
        server_placement="own" if servers else None,
        batch_per_worker=8,
        tuning="tuned" if tuned else "documented",
        options=options | {k: v for k, v in SMALL_BLOCKS.get(strategy, {}).items() if k in options},
        optimizer=Optimizer(),
        launcher=manifest.launcher_for(strategy, options),
    )


def installed() -> list[str]:
    """Return the frameworks whose environment is there."""
    return [name for name, each in load_manifests().items() if each.environment == "core" or ready_interpreter(name)]


@dataclass
class Bench:
    """Checks trials without a study, a cache or a report."""

    frameworks: Sequence[str]
    steps: int = 19
    repeats: int = 2
    scratch: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="equivalence-")))

    def __post_init__(self) -> None:
        manifests = load_manifests()
        specs = [environment_spec(manifests[name]) for name in dict.fromkeys([*self.frameworks, REFERENCE])]
        self.environments = dict(prepare_environments(specs, Silent()).environments)
        self.executor = Executor(manifests, self.environments, (), 300.0)
        self._truths = self._check(self.executor)

    def _check(self, executor: Executor) -> EquivalenceCheck:
        checker = Checker(executor, self.scratch, self.steps, self.repeats, of_reference=self.executor)
        cache = CheckCache(self.scratch / "kept", executor.manifests[REFERENCE])
        return EquivalenceCheck(checker, cache, {}, lambda _: None, Silent())

    def check(self, trial: Trial, executor: Executor | None, workload: Workload) -> EquivalenceResult:
        """Check one trial, launched by ``executor`` where it is given; the reference is always launched as it is."""
        checker = self._check(executor or self.executor).checker
        return checker.check(trial, workload, partial(self._truths.truth, workload=workload), "")

    def check_loader(self, trial: Trial, executor: Executor | None = None) -> EquivalenceResult:
        """Check the loader of a trial whose dataset is a built-in one."""
        (source,) = prepare_datasets([trial.dataset or ""], Silent()).values()
        loader = loader_of(trial, {source.name: prepare_stored_form(source, trial.loader, Silent())})
        found = {trial.id: LoaderInput(loader, reference_loader_of(trial, source, loader))}
        (case,) = loader_cases([trial], self.executor.manifests, found)
        truth_of = partial(self._truths.truth, workload=case.workload)
        checker = self._check(executor or self.executor).checker
        return checker.check(case.trial, case.workload, truth_of, "", [case.probe])


def loading(trial: Trial, dataset: str, processes: int = 0) -> Trial:
    """Return ``trial`` with the native loader of a built-in dataset."""
    shape = BUILTINS[dataset].input_shape or (3, 64, 64)
    classes = len(BUILTINS[dataset].classes)
    loader = {"dataset": dataset, "loader": "native", "loader_processes": processes}
    return trial.model_copy(update={**loader, "input_shape": shape, "classes": classes})
