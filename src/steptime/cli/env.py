"""``steptime env`` and ``steptime doctor``: the environments that frameworks run in, and what the machine has."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from steptime.catalog.accelerators import environment_parts, find_accelerators
from steptime.catalog.choices import SYNTHETIC
from steptime.catalog.manifest import broken_frameworks, load_manifests
from steptime.cli.console import print_rows, report_console, stderr_console, whole_words
from steptime.cli.frameworks import complete_framework
from steptime.cli.progress import LiveObserver
from steptime.cli.streams import print_json, say, warn
from steptime.environments import kinds as table
from steptime.environments.cache import cache_folder
from steptime.errors import EnvironmentFailure, UsageError, choices_message
from steptime.interruption import Interrupted, unmasked
from steptime.units import format_bytes

if TYPE_CHECKING:
    from steptime.environments.kinds import ListedEnvironment
    from steptime.environments.spec import EnvironmentSpec
    from steptime.runner.preparation import Prepared


app = typer.Typer(no_args_is_help=True)

EXIT_FAILED = 3
_COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FRAMEWORK]...", help="Frameworks of steptime list frameworks.", autocompletion=complete_framework
    ),
]
OnDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="cpu|cuda",
        help="cuda: the environment of the framework's CUDA build that fits this machine's driver and devices.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")]


@app.command()
def create(
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Every framework that this machine can have.")] = False,
    device: OnDevice = None,
    as_json: AsJson = False,
) -> None:
    """Create environments, those that exist already excepted; an interrupted creation is begun anew.

    An environment for CUDA devices is verified by importing its framework, and by a training step where a device is.
    Ends with a table of what is ready, what could not be built, why, and the command that would help.
    """
    from steptime.runner.preparation import prepare_environments  # noqa: PLC0415 - env remove prepares nothing

    specs, refused = _for_device(names or [], device or "cpu", everything=everything)
    console = stderr_console()
    try:
        with unmasked(), LiveObserver(console) as observer:
            prepared = prepare_environments(specs, observer)
    except Interrupted as stop:
        stop.add_note(f"complete environments stay; to continue: {shlex.join(['steptime', *sys.argv[1:]])}")
        raise
    broken = {**refused, **(broken_frameworks() if everything else {})}
    prepared.failures.update(broken)
    rows = [_made(name, prepared) for name in [*(spec.name for spec in specs), *broken]]
    columns = {"name": "environment", "state": "state", "reason": "why not", "fix": "what would help"}
    if not prepared.failures:
        columns = {"name": "environment", "state": "state"}
    print_rows(rows, columns, as_json=as_json)
    made = [ready.interpreter for ready in prepared.environments.values() if ready.interpreter != Path(sys.executable)]
    if made and not as_json:
        say("To run a script of yours in one, as it is or under steptime attach:")
        say(*(f'  PATH={shlex.quote(str(python.parent))}:"$PATH" python train.py' for python in made))
    if prepared.failures:
        sys.exit(EXIT_FAILED)


@app.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """List the environments in the cache, with their size and whether this version of steptime uses them."""
    from steptime.runner.preparation import all_environment_specs  # noqa: PLC0415 - env remove prepares nothing

    listed = table.list_environments(cache_folder(), table.addresses(all_environment_specs().values()))
    if as_json:
        print_json([asdict(each) for each in listed])
        return
    rows = [
        {
            "name": Path(each.folder).name,
            "state": _state(each),
            "python": each.python_version,
            "size": format_bytes(each.bytes),
        }
        for each in listed
    ]
    columns = {"name": "environment", "state": "state", "python": "python", "size": "size"}
    print_rows(rows, columns, as_json=False)
    say(*([f"Folders of {Path(listed[0].folder).parent}, named by framework and contents."] if listed else []))
    warn(each.unusable for each in listed if each.unusable)


@app.command()
def remove(
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Every environment in the cache.")] = False,
    device: OnDevice = None,
) -> None:
    """Remove environments from the cache, by the name or the folder name that `steptime env list` shows."""
    cache = cache_folder()
    listed = table.list_environments(cache)
    chosen = sorted({each.name for each in listed}) if everything else names or []
    if device is not None:
        _check_device(device)
        of_device = {each.name for each in listed if environment_parts(each.name)[1] == device}
        chosen = [name for name in of_device if everything or {name, environment_parts(name)[0]} & set(chosen)]
    if not chosen and not everything:
        message = "which environment? name one or more as in steptime env list, or use --all"
        raise UsageError(message)
    known = {each.name for each in listed} | {Path(each.folder).name for each in listed}
    if unknown := [choices_message("environment", name, known) for name in chosen if name not in known]:
        raise UsageError(unknown)
    for name in chosen:
        warn([f"{name}: freed {format_bytes(table.remove(name, cache))}"])


@app.command()
def lock(
    names: Names = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the present versions where the requirements still allow them.")
    ] = False,
    device: OnDevice = None,
    as_json: AsJson = False,
) -> None:
    """Renew the lock files, which pin what environments are made of, and show what changes; all without a FRAMEWORK.

    Needs uv and the package index. An environment whose lock has changed is made anew by the next `env create`.
    """
    from steptime.environments.lock_renewal import LockRenewal  # noqa: PLC0415 - other verbs renew nothing

    renewal = LockRenewal(keep=keep)
    rows = []
    for spec in _locked(names or [], device):
        for path in spec.lockable_files:
            if renewal.knows(path):
                continue
            warn([f"{spec.name}: {path.name}"])
            changed = renewal.renew(path, spec)
            if not dry_run:
                try:
                    renewal.write(path)
                except OSError as error:
                    message = (
                        f"the lock of {path} cannot be written: {error.strerror}; --dry-run only shows what changes"
                    )
                    raise UsageError(message) from error
            rows += [
                {"name": spec.name, "lock": path.stem, "package": each.package}
                | {"change": each.kind, "before": each.before, "after": each.after}
                for each in changed
            ]
    if not rows and not as_json:
        warn(["nothing changes"])
        return
    columns = {key: key for key in ("lock", "package", "change", "before", "after")}
    print_rows(rows, {"name": "environment", **columns}, as_json=as_json)


def _state(listed: "ListedEnvironment") -> str:
    state = "unusable here" if listed.unusable else "ready" if listed.ready else "unfinished"
    return state if listed.current else f"{state}, no longer used"


def _made(name: str, prepared: "Prepared") -> dict[str, Any]:
    ready = prepared.environments.get(name)
    return {
        "name": name,
        "ready": ready is not None,
        "state": f"ready, Python {ready.python_version}" if ready else "not built",
        "python": ready.python_version if ready else None,
        "interpreter": str(ready.interpreter) if ready else None,
        "reason": _in_a_line(prepared.failures.get(name, "")) or None,
        "fix": prepared.fixes.get(name),
    }


def _in_a_line(failure: str) -> str:
    """The first line of a failure, and the last of what the failing program said."""
    lines = failure.splitlines()
    quoted = [line.removeprefix("  | ") for line in lines if line.startswith("  | ") and "| fix: " not in line]
    return " ".join([*lines[:1], *quoted[-1:]])


def _check_device(device: str) -> None:
    if device not in {"cpu", "cuda"}:
        raise UsageError(choices_message("device", device, ["cpu", "cuda"]))


def _for_device(names: list[str], device: str, *, everything: bool) -> "tuple[list[EnvironmentSpec], dict[str, str]]":
    """Return the chosen environments for a device, and why there is none, by framework, for the others."""
    from steptime.runner.preparation import DATA_ENVIRONMENT, environment_spec  # noqa: PLC0415 - env remove prepares nothing

    _check_device(device)
    manifests, accelerators = load_manifests(), find_accelerators()
    if device == "cpu":
        named = _chosen(names, everything=everything)
        # Environments of loaders are for those who ask for one: they take a gigabyte each.
        usual = {*manifests, DATA_ENVIRONMENT, *names}
        return [spec for spec in named if spec.name in usual], {}
    specs, refused = [], {}
    for spec in _chosen(names, everything=everything):
        framework, _, loader = spec.name.partition("-")
        has_loader = framework in manifests and loader in manifests[framework].loader_environments
        if spec.name not in manifests and not (has_loader and spec.name in names):
            specs += [spec] * (spec.name in names)
            continue
        try:
            chosen = loader if has_loader else SYNTHETIC.name
            specs.append(environment_spec(manifests[framework], None, device, accelerators, chosen))
        except EnvironmentFailure as failure:
            refused[spec.name] = str(failure)
    return specs, refused


def _locked(names: list[str], device: str | None) -> "list[EnvironmentSpec]":
    """Return the environments whose locks are meant: of a framework all, or those for one device."""
    if device is not None:
        _check_device(device)
    every = _chosen([], everything=True)
    if names:
        _chosen(names, everything=False)  # raises for unknown names
    return [
        spec
        for spec in every
        if (not names or {spec.name, environment_parts(spec.name)[0]} & set(names))
        and device in {None, environment_parts(spec.name)[1]}
    ]


def _chosen(names: list[str], *, everything: bool) -> "list[EnvironmentSpec]":
    from steptime.runner.preparation import all_environment_specs  # noqa: PLC0415 - env remove prepares nothing

    specs = all_environment_specs()
    if everything:
        return list(specs.values())
    if not names:
        message = f"which environment? name one or more of {', '.join(specs)}, or use --all"
        raise UsageError(message)
    broken = broken_frameworks()
    unknown = [broken.get(name) or choices_message("environment", name, specs) for name in names if name not in specs]
    if unknown:
        raise UsageError(unknown)
    return [specs[name] for name in names]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Show what this machine has, what is missing, and the command that fixes it."""
    from steptime.runner.doctor import examine, in_brief  # noqa: PLC0415 - other verbs examine nothing

    if as_json:
        print_json([asdict(finding) for finding in examine()])
        return

    console = report_console()
    for finding in in_brief(examine()):
        first, *others = whole_words(f"{finding.name}: {finding.detail}", console.width - _INDENT)
        text = Text(f"{finding.status:<{_INDENT}}{first}")
        text.stylize(_COLOURS[finding.status], 0, len(finding.status))
        text.stylize("bold", _INDENT, _INDENT + len(finding.name))
        console.print(text, soft_wrap=True)
        fix = [whole_words(line, console.width - _INDENT - 4) for line in (finding.fix or "").splitlines()]
        others += [f"{'    ' if number else '  → '}{part}" for line in fix for number, part in enumerate(line)]
        for line in others:
            console.print(f"{' ' * _INDENT}{line}", soft_wrap=True)


_INDENT = 8
"""Columns ahead of what was found of the machine, which hold its status."""
