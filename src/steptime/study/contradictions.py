"""Contradictions in a study: values that are right alone and wrong together."""

from collections.abc import Iterator, Sequence

from steptime.catalog.choices import AUTO, EMULATED, LOADERS, SYNTHETIC, launchers_with
from steptime.catalog.options import Option
from steptime.errors import choices_message
from steptime.file_name import MOST_CHARACTERS, file_name_mistake
from steptime.study.document import Document, Mistake, Path
from steptime.study.environment_variables import refusal
from steptime.study.launch_settings import Launches, Steps
from steptime.study.mistakes import KnownNames, axis_mappings, environments_of, is_folder
from steptime.study.study import TRAIN_AXES, EnvironmentChoice, Study

_ON_HOSTS = {key: launchers_with(key) for key in ("hosts", "slurm")}
"""The keys of a study on real hosts, and the launchers that they mean something to."""
_KEYS_OF_TEXT = ("tokens", "vocabulary", "text_field")
_BATCHES = ("batch_per_worker", "global_batch")
_OF_LAYERS = ("dataset", "validation", "image", "sequence", *_KEYS_OF_TEXT, "classes")
"""Keys of a workload that mean nothing to a module of the user's."""


def contradictions(document: Document, known: KnownNames) -> Iterator[Mistake]:
    """Yield every pair of values that contradict each other, and options that their framework cannot have."""
    for top in axis_mappings(document):
        yield from _two_batches(document, top)
        for path, _ in document.each(*top, "workloads"):
            yield from _two_batches(document, path)
            yield from _own_module(document, path, known)
        yield from _options(document, (*top, "options"), known)
        yield from _variables(document, (*top, "environment_variables"), known)
    yield from _uneven_batches(document)
    for key, form in (("launches", Launches), ("steps", Steps)):
        yield from _empty_range(document, key, form())
    yield from _loaders_without_data(document, known)
    yield from _text(document)
    yield from _interpreters(document)
    if document.at(("launcher",)) in (None, AUTO, *known.launchers):  # else the meaning of its keys is unknown
        yield from _cluster(document)
        yield from _hosts(document)
    for top in _with_inclusions(document):
        yield from _numbers_of_hosts(document, (*top, "cluster"))
    yield from _too_few_cores(document)
    yield from _train(document)


def _with_inclusions(document: Document) -> list[Path]:
    """Return where the study begins, and each item of its ``include``."""
    return [(), *(path for path, _ in document.each("include"))]


def _own_module(document: Document, path: Path, known: KnownNames) -> Iterator[Mistake]:
    """Yield what of the workload at ``path`` contradicts that it is, or is not, a module of the user's."""
    item = document.at(path)
    if not isinstance(item, dict):
        return
    if item.get("module") is None:
        for key in ("data", "loss"):
            if item.get(key) is not None:
                yield Mistake((*path, key), "belongs to a module of your own; name it: module: my_module:build")
        return
    if item.get("data") is None:
        yield Mistake((*path, "module"), "needs data, the function that gives its batches, as data: my_module:loader")
    name = item.get("name")
    if name in known.workloads:
        yield Mistake((*path, "name"), f"{name!r} is a workload of steptime; name yours otherwise")
    elif isinstance(name, str) and (mistake := file_name_mistake(name, MOST_CHARACTERS)):
        yield Mistake((*path, "name"), mistake)
    for key in _OF_LAYERS:
        if item.get(key) is not None:
            yield Mistake((*path, key), "means nothing to a module of your own, which brings its data itself")


def _two_batches(document: Document, path: Path) -> Iterator[Mistake]:
    if "exclude" not in path and all(document.at((*path, key)) is not None for key in _BATCHES):
        yield Mistake(
            (*path, "global_batch"),
            "excludes batch_per_worker; keep one: batch_per_worker for weak scaling, global_batch for strong "
            "scaling (on the command line, KEY=null takes a key away)",
        )


def _uneven_batches(document: Document) -> Iterator[Mistake]:
    workers = [count for _, count in document.each("workers") if _is_count(count)] or [1]
    tops: list[Path] = [(), *(path for path, _ in document.each("workloads"))]
    for top in tops:
        for path, batch in document.each(*top, "global_batch"):
            uneven = [count for count in workers if _is_count(batch) and batch % count]
            if uneven:
                counts = " or ".join(map(str, uneven))
                yield Mistake(path, f"a global batch of {batch} cannot be shared equally by {counts} workers")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _empty_range(document: Document, key: str, default: Launches | Steps) -> Iterator[Mistake]:
    least, most = (
        getattr(default, end) if (value := document.at((key, end))) is None else value for end in ("min", "max")
    )
    if isinstance(least, int) and isinstance(most, int) and least > most:
        end = "min" if document.at((key, "min")) is not None else "max"
        yield Mistake((key, end), f"min ({least} {key}) must not exceed max ({most})")


def _loaders_without_data(document: Document, known: KnownNames) -> Iterator[Mistake]:
    names = _loader_names(document)
    reading = {name for name in known.loaders if name in LOADERS and LOADERS[name].form}
    if not names or not reading.issuperset(names):
        return
    for path, item in document.each("workloads"):
        if isinstance(item, str) or (isinstance(item, dict) and item.get("dataset") is None):
            read = f"the loader {names[0]!r} reads" if len(names) == 1 else f"the loaders {', '.join(names)} read"
            yield Mistake(path, f"has no dataset, which {read}; name one, or use the loader {SYNTHETIC.name}")


def _text(document: Document) -> Iterator[Mistake]:
    """Yield keys of a user's text where there is none, and text that is read in two ways."""
    seen: dict[str, tuple[object, ...]] = {}
    for top in _with_inclusions(document):
        for path, item in document.each(*top, "workloads"):
            if not isinstance(item, dict):
                continue
            dataset, given = item.get("dataset"), [key for key in _KEYS_OF_TEXT if item.get(key) is not None]
            if not isinstance(dataset, str) or not is_folder(dataset):
                for key in given:
                    yield Mistake((*path, key), "is for text of your own; name its folder or file as the dataset")
            elif seen.setdefault(dataset, tuple(map(item.get, _KEYS_OF_TEXT))) != tuple(map(item.get, _KEYS_OF_TEXT)):
                keys = ", ".join(_KEYS_OF_TEXT)
                yield Mistake(path, f"reads {dataset} in another way than a workload before; give both the same {keys}")


def _loader_names(document: Document) -> list[str]:
    names = (item.get("name") if isinstance(item, dict) else item for _, item in document.each("loaders"))
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _interpreters(document: Document) -> Iterator[Mistake]:
    frameworks = [name for _, name in document.each("frameworks")]
    if document.at(("named_environments",)) and len(frameworks) > 1:
        names = ", ".join(map(str, frameworks))
        reason = f"belongs to a study of one framework, and this one has {len(frameworks)}: {names}"
        yield Mistake(("named_environments",), reason)
    for path, item in environments_of(document):
        if not isinstance(item, dict):
            continue
        kind, python, container = item.get("kind", EnvironmentChoice().kind), item.get("python"), item.get("container")
        if kind == "existing" and python is None and container is None:
            yield Mistake(path, "an environment of the kind existing needs python: the path of its interpreter")
        if kind != "existing" and python is not None:
            yield Mistake((*path, "python"), "only an environment of the kind existing has an interpreter of its own")
        if kind != "existing" and container is not None:
            yield Mistake(
                (*path, "container"),
                f"holds what you installed, and an environment of the kind {kind} is made by steptime, outside of it; "
                "write kind: existing, or leave the container out",
            )
        elif container is not None and isinstance(python, str) and is_folder(python) and not python.startswith("/"):
            yield Mistake(
                (*path, "python"),
                f"{python!r} is sought in the container, which knows no folder of the study; write its whole path "
                "there, or a command, as python3",
            )


def _cluster(document: Document) -> Iterator[Mistake]:
    launcher, cluster = document.at(("launcher",)), document.at(("cluster",))
    if launcher == EMULATED and cluster is None:
        yield Mistake(("launcher",), "needs the key cluster, the number of hosts; write cluster: {hosts: 2}")
    usable = [key for key, launchers in _ON_HOSTS.items() if launcher is None or launcher in launchers]
    on_hosts = next((key for key in usable if document.at((key,)) is not None), None)
    if cluster is not None and launcher != EMULATED and on_hosts is None:  # else _hosts reports it
        yield Mistake(("cluster",), f"means something to the launcher {EMULATED!r} only; add launcher: {EMULATED}")
    for path, _ in document.each("include"):
        if launcher != EMULATED and document.at((*path, "cluster")) is not None:
            reason = f"means something to the launcher {EMULATED!r} only"
            if on_hosts:
                place = _place(document, (on_hosts,))
                reason += f", and the study uses real hosts ({on_hosts}, {place}); make two studies of it"
            yield Mistake((*path, "cluster"), reason)


def _numbers_of_hosts(document: Document, cluster: Path) -> Iterator[Mistake]:
    hosts = document.at((*cluster, "hosts"))
    for key in ("cpu_share", "host_bandwidth"):
        for host, _ in document.items(*cluster, key):
            if not str(host).isdecimal():
                yield Mistake((*cluster, key, host), "is not a host; hosts are numbered from 0")
            elif _is_count(hosts) and isinstance(hosts, int) and int(host) >= hosts:
                yield Mistake(
                    (*cluster, key, host), f"is not a host of workers; they are numbered from 0 to {hosts - 1}"
                )


def _hosts(document: Document) -> Iterator[Mistake]:
    launcher = document.at(("launcher",))
    for key, launchers in _ON_HOSTS.items():
        if document.at((key,)) is None:
            continue
        if launcher is not None and launcher not in launchers:
            names = ", ".join(map(repr, launchers))
            yield Mistake((key,), f"means nothing to the launcher {launcher!r}; its launchers are {names}")
        elif document.at(("cluster",)) is not None:
            yield Mistake((key,), "excludes cluster, which makes hosts of this machine; keep one of them")


def _train(document: Document) -> Iterator[Mistake]:
    """Yield the contradictions of trainings: of the whole study, or of items of ``include``."""
    trained: list[Path] = [top for top in _with_inclusions(document) if isinstance(document.at((*top, "train")), dict)]
    if () in trained:
        place = _place(document, ("train",))
        for key in ("breakdown", "loader_alone"):
            if document.at((key,)) not in (None, False):
                yield Mistake(
                    (key,),
                    f"explains timed steps, and train ({place}) makes the whole study train until it is over; make two "
                    "studies of it, or write train in an item of include",
                )
        yield from _nothing_to_learn(document)
    else:
        for top in axis_mappings(document):
            for axis in TRAIN_AXES if top and top not in trained else ():
                if document.at((*top, axis)) is not None:
                    yield Mistake((*top, axis), "varies how a study trains, and this one times steps; add train: {…}")
    for top in trained:
        yield from _too_few_epochs(document, top)
    yield from _two_repetitions(document, [(*top, "train") for top in trained])


def _place(document: Document, path: Path) -> str:
    location = document.location(path)
    return f"override {location!r}" if isinstance(location, str) else f"line {location}"


def _too_few_epochs(document: Document, top: Path) -> Iterator[Mistake]:
    """Yield what needs more epochs than the training below ``top`` has."""
    epochs = document.at((*top, "train", "epochs"))
    if not isinstance(epochs, int) or not _is_count(epochs):
        return
    # An item of include replaces an axis of its train.
    warmup = next((path for path in _train_axis(top, "warmup_epochs") if document.at(path) is not None), ())
    warmups = [count for _, count in document.each(*warmup) if isinstance(count, int)] if warmup else [0]
    if warmup and warmups and min(warmups) >= epochs:
        yield Mistake(warmup, f"leaves nothing of {epochs} epochs; the warm-up is a part of the training")
        return
    left = epochs - min(warmups, default=0)
    for path in _train_axis(top, "schedules"):
        for where, schedule in document.each(*path):
            patience = schedule.get("patience") if isinstance(schedule, dict) else None
            if isinstance(patience, int) and schedule.get("name") == "plateau" and patience + 2 >= left:
                yield Mistake(
                    (*where, "patience"),
                    f"with {patience}, plateau lowers the rate after {patience + 2} epochs at the earliest, and the "
                    f"training has {left} after its warm-up; lower patience, or train longer",
                )


def _train_axis(top: Path, axis: str) -> list[Path]:
    """Return where an axis of the training below ``top`` may be, what wins first."""
    return [*([(*top, axis)] if top else []), (*top, "train", axis)]


def _two_repetitions(document: Document, trains: Sequence[Path]) -> Iterator[Mistake]:
    """Yield the seeds and limits of later trainings, which the first sets for the whole study."""
    for path in trains[1:]:
        for key in ("seeds", "time_limit"):
            value = document.at((*path, key))
            if value is not None and value != document.at((*trains[0], key)):
                place = _place(document, trains[0])
                yield Mistake((*path, key), f"is that of the first train ({place}) in all trainings; leave it out here")


def _nothing_to_learn(document: Document) -> Iterator[Mistake]:
    names = _loader_names(document)
    if names == [SYNTHETIC.name]:
        yield Mistake(("loaders",), "synthetic samples have nothing to learn; use native, or leave the key out")
    for path, item in document.each("workloads"):
        if SYNTHETIC.name not in names and (not isinstance(item, dict) or item.get("dataset") is None):
            yield Mistake(path, "has no dataset to learn; name one, as {name: lenet5, dataset: digits}")


def _options(document: Document, path: Path, known: KnownNames) -> Iterator[Mistake]:
    for framework, chosen in document.items(*path):
        if framework not in known.frameworks or not isinstance(chosen, dict):
            continue
        options = known.frameworks[framework].options
        for option in chosen:
            where: Path = (*path, framework, option)
            if option in options:
                yield from _option_values(document, where, options[option])
            elif options:
                yield Mistake(where, choices_message(f"option of {framework}", option, options))
            else:
                yield Mistake(where, f"{framework} has no options")


def _variables(document: Document, path: Path, known: KnownNames) -> Iterator[Mistake]:
    for name, values in document.items(*path):
        if not isinstance(values, dict):
            yield from _refused(name, (*path, name))
            continue
        if name not in known.frameworks:
            yield Mistake((*path, name), choices_message("framework", name, known.frameworks))
        for below in values:
            yield from _refused(below, (*path, name, below))


def _refused(name: str, path: Path) -> Iterator[Mistake]:
    if reason := refusal(name):
        yield Mistake(path, reason)


def _too_few_cores(document: Document) -> Iterator[Mistake]:
    threads, cores = document.at(("threads_per_worker",)), document.at(("cores_per_worker",))
    threads = Study.model_fields["threads_per_worker"].default if threads is None else threads
    if isinstance(threads, int) and isinstance(cores, int) and cores < threads:
        yield Mistake(
            ("cores_per_worker",),
            f"{cores} is less than threads_per_worker, which is {threads}; each compute thread needs a core of its own",
        )


def _option_values(document: Document, path: Path, option: Option) -> Iterator[Mistake]:
    for where, value in document.each(*path):
        mistake = option.mistake(str(path[-1]), value)
        if mistake:
            yield Mistake(where, mistake)
