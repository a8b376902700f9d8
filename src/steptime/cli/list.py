"""``steptime list``: what can be named in a study, and which distribution brings it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from steptime.catalog.choices import LOADERS, STRATEGIES
from steptime.catalog.manifest import broken_frameworks, load_manifests
from steptime.catalog.plugins import OWN, Registry, plugins_of
from steptime.catalog.workloads.table import LIBRARY
from steptime.cli.console import print_rows
from steptime.errors import EnvironmentFailure, PluginError, UsageError, choices_message

Rows = list[dict[str, Any]]
T = TypeVar("T")


def list_things(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="frameworks, workloads, strategies, loaders, launchers, backends, datasets or studies.",
            autocompletion=lambda: list(_LISTS),
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """List what can be named in a study."""
    if what is None:
        message = f"say what to list: {', '.join(sorted(_LISTS))}"
        raise UsageError(message)
    if what not in _LISTS:
        raise UsageError(choices_message("list", what, _LISTS))
    make_rows, columns = _LISTS[what]
    rows = make_rows()
    if any(row.get("provider", OWN) != OWN for row in rows):
        columns = {**columns, "provider": "from"}
    print_rows(rows, columns, as_json=as_json)


def framework_rows() -> Rows:
    """One row per framework, true on this machine."""
    from steptime.catalog.accelerators import find_accelerators
    from steptime.environments.kinds import find_ready
    from steptime.environments.spec import choose_python
    from steptime.runner.preparation import environment_spec

    accelerators = find_accelerators()
    rows = []
    for name, manifest in load_manifests().items():
        ready = find_ready(environment_spec(manifest))
        reason = None
        if ready is None:
            try:
                choose_python(name, manifest.python)
                reason = f"not installed; run: steptime env create {name}"
            except EnvironmentFailure as failure:
                reason = str(failure).splitlines()[0]
        rows.append(
            {
                "name": name,
                "provider": manifest.provider,
                "title": manifest.title,
                "strategies": list(manifest.strategies),
                "devices": ["cpu", *(["cuda"] if len(accelerators) and manifest.cuda_build(accelerators) else [])],
                "possible_devices": manifest.devices,
                "python": ready.python_version if ready else manifest.python[0],
                "installed": ready is not None,
                "version": ready.packages.get(manifest.distribution.lower()) if ready else None,
                "reason": reason,
                "state": f"{ready.packages.get(manifest.distribution.lower())}, Python {ready.python_version}"
                if ready
                else reason,
                "notes": manifest.notes,
                "options": {name: option.model_dump(mode="json") for name, option in manifest.options.items()},
                "tuned": manifest.tuned.model_dump(mode="json"),
                "implementations": manifest.implementations,
            }
        )
    return rows + _broken_rows("framework", broken_frameworks(), "state")


def _workload_rows() -> Rows:
    return _registry_rows(
        LIBRARY,
        "title",
        lambda entry: {
            "title": entry.title,
            "parameters": entry.published_parameters,
            "input_shape": list(entry.input_shape),
            "classes": entry.classes,
            "source": entry.source,
        },
    )


def _strategy_rows() -> Rows:
    manifests = load_manifests()
    return [
        {
            "name": strategy.name,
            "summary": strategy.summary,
            "frameworks": [each for each, manifest in manifests.items() if strategy.name in manifest.strategies],
        }
        for strategy in STRATEGIES.values()
    ]


def _loader_rows() -> Rows:
    manifests = load_manifests()
    return [
        {"name": name, "summary": loader.summary, "frameworks": [k for k, m in manifests.items() if name in m.loaders]}
        for name, loader in LOADERS.items()
    ]


def _launcher_rows() -> Rows:
    from steptime.launchers.table import LAUNCHERS

    return _registry_rows(LAUNCHERS, "summary", lambda launcher: {"summary": launcher.summary})


def back_end_rows() -> Rows:
    """One row per back end of the network benchmark."""
    from steptime.runner.net_plan import back_ends_of

    return [
        {
            "name": name,
            "operations": back_end.support.operations,
            "framework": back_end.manifest.name,
            "launcher": back_end.launcher,
            "device": back_end.support.device,
            "summary": back_end.support.summary,
        }
        for name, back_end in back_ends_of(load_manifests()).items()
    ]


def _dataset_rows() -> Rows:
    from steptime.datasets.builtins import BUILTINS

    return _registry_rows(BUILTINS, "title", lambda entry: {"title": entry.title, "source": entry.source})


def _study_rows() -> Rows:
    from steptime.study.study_file import broken_studies, shipped_studies, study_providers

    providers = study_providers()
    rows = [
        {"name": name, "provider": providers[name], "question": question}
        for name, question in shipped_studies().items()
    ]
    return rows + _broken_rows("studies", broken_studies(), "question")


def _registry_rows(registry: Registry[T], column: str, describe: Callable[[T], dict[str, Any]]) -> Rows:
    """One row per entry; the ``column`` of a plug-in that cannot be used has the cause."""
    rows = []
    for name in registry:
        try:
            described = describe(registry[name])
        except PluginError as error:
            described = {column: str(error)}
        rows.append({"name": name, "provider": registry.provider(name), **described})
    return rows


def _broken_rows(kind: str, causes: Mapping[str, str], column: str) -> Rows:
    plugins = plugins_of(kind) if causes else {}
    return [{"name": name, "provider": plugins[name].provider, column: cause} for name, cause in causes.items()]


_LISTS: dict[str, tuple[Callable[[], Rows], dict[str, str]]] = {
    "frameworks": (
        framework_rows,
        {"name": "framework", "strategies": "strategies", "devices": "devices", "state": "installed"},
    ),
    "workloads": (
        _workload_rows,
        {"name": "workload", "title": "what", "parameters": "parameters", "input_shape": "input", "classes": "classes"},
    ),
    "strategies": (_strategy_rows, {"name": "strategy", "summary": "what", "frameworks": "frameworks"}),
    "loaders": (_loader_rows, {"name": "loader", "summary": "what", "frameworks": "frameworks"}),
    "launchers": (_launcher_rows, {"name": "launcher", "summary": "what"}),
    "backends": (
        back_end_rows,
        {"name": "back end", "operations": "operations", "framework": "framework", "summary": "what"},
    ),
    "datasets": (_dataset_rows, {"name": "dataset", "title": "what", "source": "from"}),
    "studies": (_study_rows, {"name": "study", "question": "question"}),
}
