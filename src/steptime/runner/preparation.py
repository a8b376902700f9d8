"""The preparation of a run: environments and datasets, made ready before anything is launched."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steptime.catalog.accelerators import Accelerators, CudaBuild
from steptime.catalog.choices import CACHED, NATIVE, OWN, SYNTHETIC, loader_named
from steptime.catalog.manifest import Manifest, find_manifest, load_manifests
from steptime.catalog.workloads.table import LIBRARY
from steptime.datasets.builtins import BUILTINS, PYTHONS, REQUIREMENTS, VERIFY
from steptime.datasets.corpus import Corpus, Reading, scan_corpus
from steptime.datasets.creation import builtin_folder, find_builtin, make, open_dataset, run_maker
from steptime.datasets.dataset import Dataset, require_batch
from steptime.datasets.stored_forms import STORED_FORMS, find_stored, store, stored_bytes, stored_folder
from steptime.datasets.tokens import TOKENIZER, TOKENIZER_REQUIREMENTS, TOKENIZER_VERIFY, make_rows, mapped_row
from steptime.datasets.validation import Split, loader_json, split
from steptime.environments.cache import cache_folder
from steptime.environments.kinds import EnvironmentSpec, ReadyEnvironment, create_all, find_ready
from steptime.environments.locks import is_locked
from steptime.environments.tools import GET_UV, find_uv
from steptime.errors import DatasetError, EnvironmentFailure
from steptime.execution.jobs import synthetic_loader
from steptime.execution.progress import Observer, SampleProgress
from steptime.expansion.combinations import DatasetFacts
from steptime.study.study import EnvironmentChoice, Study
from steptime.study.trial import Trial
from steptime.units import format_bytes
from steptime.worker.samples import SHARDED_FORMS

DATA_ENVIRONMENT = "data"
NO_ACCELERATORS = Accelerators()
NO_READINGS: Mapping[str, Reading] = {}


@dataclass
class Prepared:
    """What is ready, and why the rest is not."""

    environments: dict[str, ReadyEnvironment] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """By framework."""
    fixes: dict[str, str] = field(default_factory=dict)
    """The command that would help, for those failures that know one."""


def environment_spec(
    manifest: Manifest,
    chosen: EnvironmentChoice | None = None,
    device: str = "cpu",
    accelerators: Accelerators = NO_ACCELERATORS,
    loader: str = SYNTHETIC.name,
) -> EnvironmentSpec:
    """Return what the environment of a framework must be.

    Args:
        manifest: the framework's.
        chosen: from the study's ``environments``, where the user wants another kind or has an interpreter.
        device: that is trained on.
        accelerators: of this machine, by which the build for ``cuda`` is chosen; without any it is the newest.
        loader: that feeds the trial; some have an environment of their own.

    Raises EnvironmentFailure where no build of the framework runs on the device, or none has the loader there.
    """
    kind = "core" if manifest.environment == "core" else "venv"
    interpreter = None
    container = tuple(chosen.container or ()) if chosen else ()
    if chosen:
        kind = chosen.kind
        interpreter = Path(chosen.interpreter) if chosen.interpreter else None
        if interpreter and not container:  # whose home it is that ~ means in a container, only the container knows
            interpreter = interpreter.expanduser()
    if device == "cuda" and interpreter is None:
        build = manifest.cuda_build(accelerators)
        if build is None:
            raise EnvironmentFailure(manifest.no_cuda_reason(accelerators))
        return cuda_environment_spec(manifest, build, loader)
    spec = EnvironmentSpec(
        name=manifest.name,
        requirements=manifest.requirements,
        pythons=manifest.python,
        verify=manifest.verify,
        kind=kind,
        interpreter=interpreter,
        container=container,
        finish=manifest.program_of(manifest.finish),
        program=manifest.interpreter,
    )
    own = manifest.loader_environments.get(loader)
    return _with_loader(spec, manifest, own.requirements, own.verify) if own else spec


def cuda_environment_spec(manifest: Manifest, build: CudaBuild, loader: str = SYNTHETIC.name) -> EnvironmentSpec:
    """Return what the environment of one of a framework's builds for CUDA must be.

    Raises EnvironmentFailure where the loader needs an environment of its own and has none for the build.
    """
    spec = EnvironmentSpec(
        name=manifest.name + build.suffix,
        requirements=manifest.folder / build.requirements,
        pythons=build.python or manifest.python,
        verify=build.verify or manifest.verify,
        finish=manifest.program_of(build.finish),
        program=manifest.interpreter,
    )
    own = manifest.loader_environments.get(loader)
    if own is None:
        return spec
    if build.requirements not in own.cuda_requirements:
        message = f"{manifest.title} has no environment with the loader {loader!r} for CUDA {build.toolkit}"
        raise EnvironmentFailure(message)
    return _with_loader(spec, manifest, own.cuda_requirements[build.requirements], own.verify)


def _with_loader(spec: EnvironmentSpec, manifest: Manifest, requirements: str, verify: str) -> EnvironmentSpec:
    """Return ``spec`` with the requirements of a loader's own environment, which is named after them."""
    suffix = requirements.removeprefix("requirements").removesuffix(".txt")
    return replace(
        spec,
        name=manifest.name + suffix,
        requirements=manifest.folder / requirements,
        verify="\n".join(filter(None, [spec.verify, verify])),
    )


def ready_interpreter(
    framework: str,
    cache: Path | None = None,
    device: str = "cpu",
    accelerators: Accelerators = NO_ACCELERATORS,
    loader: str = SYNTHETIC.name,
) -> Path | None:
    """Return the interpreter of a framework's environment; None if it is not ready, or there is no such framework."""
    manifest = find_manifest(framework)
    if manifest is None or (device == "cuda" and manifest.cuda_build(accelerators) is None):
        return None
    ready = find_ready(environment_spec(manifest, None, device, accelerators, loader), cache)
    return ready.interpreter if ready else None


def prepare_environments(specs: Iterable[EnvironmentSpec], observer: Observer) -> Prepared:
    """Make every environment that is not ready yet; one that cannot be made does not stop the others."""
    prepared = Prepared()
    missing = []
    # What compiles takes longest, so that it is begun first.
    for spec in sorted(specs, key=lambda spec: not spec.finish):
        ready = find_ready(spec)
        if ready is None:
            missing.append(spec)
        else:
            prepared.environments[spec.name] = ready
    if missing:
        observer.stage("Making environments", len(missing))
    for spec in missing:
        if spec.kind not in {"core", "existing"} and not is_locked(spec):
            observer.note(
                f"{spec.name} has no lock file: its packages are installed as the index has them now, and no digest is "
                f"checked; steptime env lock {spec.name} makes one"
            )
    if find_uv() is None and any(spec.kind == "venv" and is_locked(spec) for spec in missing):
        observer.note(f"pip installs them; uv takes a fraction of the time: {GET_UV}")
    made = create_all(missing, lambda name, stage: observer.working_on(f"environment {name}: {stage}"))
    for name, result in made.items():
        if isinstance(result, EnvironmentFailure):
            prepared.failures[name] = str(result)
            if result.fix:
                prepared.fixes[name] = result.fix
            observer.note(str(result))
        else:
            prepared.environments[name] = result
        observer.finished(f"environment {name}", ok=name in prepared.environments)
    return prepared


def dataset_names(trials: Iterable[Trial]) -> list[str]:
    """Return the names of the datasets that ``trials`` train on and are validated by, each once."""
    both = ((trial.dataset, trial.training.validation if trial.training else None) for trial in trials)
    return list(dict.fromkeys(name for names in both for name in names if name))


def missing_builtins(names: Iterable[str]) -> list[str]:
    """Return those of the datasets ``names`` that are built in and not made yet."""
    cache = cache_folder()
    return [name for name in names if name in BUILTINS and find_builtin(name, cache) is None]


def prepare_datasets(
    names: Iterable[str],
    observer: Observer,
    skip_broken: Collection[str] = (),
    readings: Mapping[str, Reading] = NO_READINGS,
) -> dict[str, Dataset]:
    """Return the datasets ``names``, built-in ones made first where they do not exist yet.

    Broken images are left out of those in ``skip_broken``, and named; what else of a folder is not used is counted.
    Those in ``readings`` are text, which is made into tokens.

    Raises DatasetError when a folder is unusable, EnvironmentFailure when a built-in dataset cannot be made.
    """
    cache = cache_folder()
    if missing := missing_builtins(names):
        interpreter = data_interpreter(observer)
        observer.stage("Making datasets", len(missing))
        for name in missing:
            observer.working_on(f"dataset {name}")
            make(name, builtin_folder(name, cache), interpreter)
            observer.finished(f"dataset {name}")
    found = {
        name: _prepare_corpus(scan_corpus(name, cache, readings[name]), observer)
        if name in readings
        else open_dataset(name, cache, skip_broken=name in skip_broken)
        for name in names
    }
    for name, dataset in found.items():
        if name not in BUILTINS:
            observer.note(dataset.contents.in_words(name))
        if dataset.skipped:
            observer.note("\n".join([f"left out of the dataset {name}, because they are broken:", *dataset.skipped]))
    return found


def _prepare_corpus(corpus: Corpus, observer: Observer) -> Dataset:
    """Return a user's own text as tokens, which are made in the cache where they do not exist yet."""

    def train(folder: Path, vocabulary: int) -> None:
        interpreter = data_interpreter(observer, tokenizer_environment_spec())
        observer.working_on(f"a tokenizer for {corpus.name}")
        run_maker(TOKENIZER, corpus.name, folder, interpreter, {"vocabulary": vocabulary})

    return make_rows(corpus, cache_folder(), train)


def prepare_stored_form(dataset: Dataset, loader: str, observer: Observer) -> Dataset:
    """Return a dataset in the form that a loader reads, which is made in the cache where it does not exist yet.

    Raises DatasetError when it cannot be stored.
    """
    if dataset.form == "tokens":
        return mapped_row(dataset, cache_folder()) if loader == CACHED.name else dataset
    form = loader_named(loader).form
    if form is None or form not in STORED_FORMS:
        return dataset
    folder = stored_folder(dataset, form, cache_folder())
    made = find_stored(dataset, form, folder)
    if made:
        return made
    name = f"{dataset.name} as {form}"
    observer.note(f"storing {name}, about {format_bytes(stored_bytes(dataset, form))}, in {folder}")
    return store(dataset, form, folder, SampleProgress(observer, f"Storing {name}"))


def data_environment_spec() -> EnvironmentSpec:
    """Return what the environment must be that makes the built-in datasets.

    It is none of the frameworks': what carries the pictures (scikit-image, scikit-learn) would bind their versions, and
    steptime itself would grow by twice its size for what runs once on a machine.
    """
    return EnvironmentSpec(name=DATA_ENVIRONMENT, requirements=REQUIREMENTS, pythons=list(PYTHONS), verify=VERIFY)


def tokenizer_environment_spec() -> EnvironmentSpec:
    """Return what the environment must be that trains tokenizers."""
    name = f"{DATA_ENVIRONMENT}-bpe"
    return EnvironmentSpec(name, TOKENIZER_REQUIREMENTS, list(PYTHONS), TOKENIZER_VERIFY)


def all_environment_specs() -> dict[str, EnvironmentSpec]:
    """Return what every environment must be that steptime makes, by name: the frameworks', and those for data.

    A framework's environments for CUDA and for loaders are named after it and their requirements: ``pytorch-cuda``,
    ``pytorch-dali``.
    """
    manifests = load_manifests()
    specs = {name: environment_spec(manifest) for name, manifest in manifests.items()}
    others = [
        cuda_environment_spec(manifest, build, loader)
        for manifest in manifests.values()
        for build in manifest.cuda
        for loader in [SYNTHETIC.name, *_loaders_with_environment(manifest, build)]
    ]
    others += [
        environment_spec(manifest, loader=loader)
        for manifest in manifests.values()
        for loader in manifest.loader_environments
    ]
    others += [data_environment_spec(), tokenizer_environment_spec()]
    return {**specs, **{spec.name: spec for spec in others}}


def _loaders_with_environment(manifest: Manifest, build: CudaBuild) -> list[str]:
    return [name for name, own in manifest.loader_environments.items() if build.requirements in own.cuda_requirements]


def data_interpreter(observer: Observer, spec: EnvironmentSpec | None = None) -> Path:
    """Return the Python that makes datasets, by default the built-in ones.

    Raises EnvironmentFailure where its environment cannot be made.
    """
    spec = spec or data_environment_spec()
    prepared = prepare_environments([spec], observer)
    if spec.name in prepared.failures:
        raise EnvironmentFailure(prepared.failures[spec.name])
    return prepared.environments[spec.name].interpreter


def datasets_with_skips(study: Study) -> set[str]:
    """Return the datasets whose broken images the study leaves out."""
    chosen = [*study.workloads, *(each for inclusion in study.include for each in inclusion.workloads or [])]
    return {workload.dataset for workload in chosen if workload.dataset and workload.skip_broken}


def readings_of(study: Study) -> dict[str, Reading]:
    """Return the study's datasets that are text of the user's, and how it is read."""
    chosen = [*study.workloads, *(each for inclusion in study.include for each in inclusion.workloads or [])]
    return {
        workload.dataset: Reading(workload.tokens or "bytes", workload.vocabulary, workload.text_field or "text")
        for workload in chosen
        if workload.dataset and workload.dataset not in BUILTINS and LIBRARY[workload.name].of_tokens
    }


def dataset_facts(study: Study) -> dict[str, DatasetFacts]:
    """Return what must be known of the study's datasets to expand it; nothing is made for that.

    Raises DatasetError when a folder of the user's is unusable.
    """
    chosen = list(study.workloads)
    for inclusion in study.include:
        chosen += inclusion.workloads or []
    facts = {}
    skips, readings = datasets_with_skips(study), readings_of(study)
    for name in dict.fromkeys(name for workload in chosen for name in (workload.dataset, workload.validation) if name):
        if name in BUILTINS:
            builtin = BUILTINS[name]
            of_tokens = builtin.form == "tokens"
            facts[name] = DatasetFacts(builtin.input_shape, len(builtin.classes), of_tokens=of_tokens)
        elif name in readings:
            corpus = scan_corpus(name, cache_folder(), readings[name])
            facts[name] = DatasetFacts(None, corpus.vocabulary, corpus.contents, of_tokens=True, corpus=corpus)
        else:
            dataset = open_dataset(name, cache_folder(), skip_broken=name in skips)
            facts[name] = DatasetFacts(dataset.input_shape, dataset.classes, dataset.contents)
    return facts


def loader_of(trial: Trial, datasets: Mapping[str, Dataset]) -> dict[str, Any]:
    """Return the job's ``loader`` object for ``trial``.

    Raises DatasetError when its dataset cannot fill one step of all workers.
    """
    if trial.own is not None:
        return {"kind": OWN.name}
    if trial.dataset is None or trial.loader == SYNTHETIC.name:
        return synthetic_loader(1)
    dataset = datasets[trial.dataset]
    require_batch(dataset.samples_of(trial.input_shape), trial.global_batch)
    return loader_json(dataset, trial.input_shape, trial.loader, trial.loader_processes)


def training_split(trial: Trial, datasets: Mapping[str, Dataset]) -> Split | None:
    """Return the dataset of ``trial`` apart from its validation set; None for a trial that is not trained.

    Raises DatasetError where there is no validation set, or the rest cannot fill one step of all workers.
    """
    if trial.training is None or trial.dataset is None:
        return None
    chosen = trial.training.validation
    if chosen and datasets[trial.dataset].form == "tokens":
        message = (
            f"{chosen} cannot validate {trial.dataset}: text for validation lies in the folder trained on, as "
            "validation.txt or in a folder validation"
        )
        raise DatasetError(message)
    own = open_dataset(chosen, cache_folder()) if chosen else None
    found = split(datasets[trial.dataset], trial.input_shape, cache_folder(), own)
    require_batch(found.training.samples_of(trial.input_shape), trial.global_batch)
    return found


def reference_loader_of(trial: Trial, source: Dataset, loader: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``loader`` object by which the reference reads what ``trial`` reads, in the same order.

    Args:
        trial: whose loader is to be compared with the reference's.
        source: the dataset that the loader's stored form was made of, or that it reads as it is.
        loader: the ``loader`` object of the trial's job.
    """
    found = loader_json(source, trial.input_shape, NATIVE.name)
    if loader["dataset"]["form"] in SHARDED_FORMS:
        found["dataset"]["shards"] = loader["dataset"]["index"]
    return found
