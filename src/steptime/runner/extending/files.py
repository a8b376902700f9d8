"""What must hold for the files of a framework, whether or not the framework is installed.

The contract suite and ``steptime check`` demand the same: both read ``file_findings``.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import steptime
from steptime.catalog.choices import LOADERS, SINGLE, STRATEGIES, SYNTHETIC
from steptime.catalog.manifest import FILE, Manifest, load_manifests
from steptime.catalog.options import Option
from steptime.catalog.plugins import OWN
from steptime.environments.locks import lock_of, requirement_lines
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.table import LAUNCHERS
from steptime.plain_file import temporary_folder
from steptime.runner.settings_table import settings_mistakes
from steptime.worker.framework import (
    CLIPPED_APART,
    FROZEN_LAYER,
    KEPT_GRADIENT,
    NEVER_PULLED,
    PUSH_TWICE,
    STALE_WEIGHTS,
    ZEROS_SENT,
)

_TYPES = {"bool": bool, "int": int, "float": float, "str": str}
_PRECISIONS_OF_PROCESSORS = {"fp32", "bf16"}
_SHORTEST_HELP = 10
"""Letters of an option's help."""
_FAULTS = {CLIPPED_APART, FROZEN_LAYER, KEPT_GRADIENT, STALE_WEIGHTS, ZEROS_SENT, PUSH_TWICE, NEVER_PULLED}

_IMPORT = """
import importlib, json, sys
sys.path.insert(0, {folder!r})
before = set(sys.modules)
try:
    adapter = importlib.import_module("steptime.frameworks.{name}.adapter")
except BaseException as error:
    print(json.dumps({{"error": "%s: %s" % (type(error).__name__, error)}}))
    sys.exit()
loaded = {{name.split(".")[0] for name in set(sys.modules) - before}}
foreign = loaded - set(sys.stdlib_module_names) - {{"numpy", "steptime", "cython_runtime"}}
framework = getattr(adapter, "FRAMEWORK", None)
from steptime.worker.framework import Framework
found = {{
    "foreign": sorted(name for name in foreign if not name.startswith("_")),
    "typed": isinstance(framework, Framework),
    "gives": [name for name in Framework._fields if getattr(framework, name, None) is not None],
}}
try:
    rules = importlib.import_module("steptime.frameworks.{name}.communication")
    found["policies"] = sorted(rules.POLICIES)
except ModuleNotFoundError as error:
    if error.name != "steptime.frameworks.{name}.communication":
        found["policies_error"] = str(error)
except Exception as error:
    found["policies_error"] = "%s: %s" % (type(error).__name__, error)
try:
    contract = importlib.import_module("steptime.frameworks.{name}.contract").CONTRACT
    found["batches"], found["faults"] = contract.batches is not None, sorted(contract.planted())
except Exception as error:
    found["contract_error"] = "%s: %s" % (type(error).__name__, error)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    subject: str
    """``manifest``, ``files``, ``adapter``, or a strategy with its number of workers."""
    what: str
    """What must hold."""
    ok: bool
    detail: str = ""
    """What was found; where it does not hold, also what to do."""


def file_findings(manifest: Manifest) -> list[Finding]:
    """Return what holds for the folder of a framework as it lies there, whether or not the framework is installed."""
    return [
        *_about_strategies(manifest),
        _settings_finding(manifest),
        _options_finding(manifest),
        *_about_cuda(manifest),
        *_about_notes(manifest),
        *_about_files(manifest),
        *_about_imports(manifest),
        *_adapter_findings(manifest),
    ]


def finding(subject: str, what: str, wrong: Sequence[str]) -> Finding:
    """Return what was found where something must hold, from the sentences about what is wrong."""
    return Finding(subject, what, ok=not wrong, detail="; ".join(wrong))


def _about_strategies(manifest: Manifest) -> Iterator[Finding]:
    wrong = [
        f"[strategies.{name}] is not a strategy of steptime; choose among {', '.join(STRATEGIES)}"
        for name in manifest.strategies
        if name not in STRATEGIES
    ]
    if SINGLE.name not in manifest.strategies:
        wrong.append(f"[strategies.{SINGLE.name}] is missing: one worker is what all others are compared with")
    elif manifest.strategies[SINGLE.name].max_workers != 1:
        wrong.append(f"[strategies.{SINGLE.name}] must have max_workers = 1")
    for name, support in manifest.strategies.items():
        if support.launcher not in LAUNCHERS:
            wrong.append(f"[strategies.{name}] names the launcher {support.launcher!r}; there are {list(LAUNCHERS)}")
        if not 1 <= support.min_workers <= (support.max_workers or support.min_workers):
            wrong.append(f"[strategies.{name}] has min_workers {support.min_workers}, beyond its max_workers")
        if support.launcher == "mpi" and (support.scheduler or _has_servers(name)):
            wrong.append(f"[strategies.{name}] has servers or a scheduler, which mpiexec does not start")
    yield finding("manifest", "strategies that can be started, single among them", wrong)


def _settings_finding(manifest: Manifest) -> Finding:
    wrong = [] if manifest.python else ["python is empty; name the versions that the framework runs on"]
    wrong += [f"python {text!r} is not a version such as '3.11'" for text in manifest.python if not _is_version(text)]
    if manifest.devices[:1] != ["cpu"] or manifest.precisions[:1] != ["fp32"]:
        wrong.append("devices must begin with 'cpu' and precisions with 'fp32', in which frameworks are compared")
    if SYNTHETIC.name not in manifest.loaders:
        wrong.append("loaders must have 'synthetic', which the equivalence check feeds; 'native' only where it runs")
    wrong += [f"loader {name!r} is none of {', '.join(LOADERS)}" for name in manifest.loaders if name not in LOADERS]
    wrong += [
        f"precisions has {name!r}, which processors do not have; put it into cuda_precisions"
        for name in manifest.precisions
        if name not in _PRECISIONS_OF_PROCESSORS
    ]
    if manifest.cuda_precisions[:1] != ["fp32"]:
        wrong.append("cuda_precisions must begin with 'fp32'")
    return finding("manifest", "Python versions, devices, precisions and loaders", wrong)


def _options_finding(manifest: Manifest) -> Finding:
    read = _texts_of(manifest)
    wrong = [
        f"[options.{name}] {mistake}"
        for name, option in manifest.options.items()
        for mistake in _option_mistakes(option, manifest, is_read=name in read)
    ]
    return finding("manifest", "options that are explained, read, and whose defaults they may have", wrong)


def _option_mistakes(option: Option, manifest: Manifest, *, is_read: bool) -> Iterator[str]:
    if len(option.help) <= _SHORTEST_HELP:
        yield "needs a help that explains it"
    if not is_read:
        yield "is read by no file of the framework or its libraries"
    values = [option.default, *option.choices]
    if any(type(value) is not _TYPES[option.type] for value in values):
        yield f"is of type {option.type}, but has the values {values}"
    if option.choices and option.default not in option.choices:
        yield f"has the default {option.default!r}, which is none of {option.choices}"
    for strategy in option.strategies:
        if strategy not in manifest.strategies:
            yield f"names the strategy {strategy!r}, which the manifest has not"


def _is_version(text: str) -> bool:
    return re.fullmatch(r"3\.\d+", text) is not None


def _about_cuda(manifest: Manifest) -> Iterator[Finding]:
    wrong = []
    if bool(manifest.cuda) == bool(manifest.without_cuda):
        wrong.append("a table [[cuda]] for each build for GPUs is needed, or without_cuda with the reason; not both")
    for build in manifest.cuda:
        if not re.fullmatch(r"requirements-cuda\d*\.txt", build.requirements):
            wrong.append(f"[[cuda]] names {build.requirements!r}, which is not like requirements-cuda.txt")
        elif not (manifest.folder / build.requirements).is_file():
            wrong.append(f"[[cuda]] names {build.requirements}, which is not in the folder")
        wrong += _code_mistakes(build.verify, "verify of [[cuda]]")
        if bool(build.newest) != bool(build.why_not_newer):
            wrong.append("[[cuda]] has one of newest and why_not_newer without the other")
    yield finding("manifest", "a build for GPUs, or without_cuda with the reason", wrong)


def _about_notes(manifest: Manifest) -> Iterator[Finding]:
    wrong = [] if manifest.title else ["title is empty"]
    if not manifest.notes:
        wrong.append("notes is empty; name a fact that a reader of results must know")
    wrong += [f"the note {note!r} does not end with a full stop" for note in manifest.notes if not note.endswith(".")]
    wrong += _code_mistakes(manifest.verify, "verify")
    if "import" not in manifest.verify:
        wrong.append("verify imports nothing; import the framework, so that a broken environment is noticed")
    yield finding("manifest", "title, notes, and code that verifies an environment", wrong)


def _code_mistakes(code: str, where: str) -> Iterator[str]:
    try:
        compile(code, where, "exec")
    except SyntaxError as error:
        yield f"{where} is not Python: {error}"


def _about_files(manifest: Manifest) -> Iterator[Finding]:
    wanted = {
        FILE: "the manifest",
        "adapter.py": "ends in FRAMEWORK = Framework(open_session=…)",
        "contract.py": "ends in CONTRACT = Contract(…), by which the framework is tested",
        "requirements.txt": "what the environment needs",
        "README.md": "what this framework does differently",
    }
    wrong = [f"{name} is missing: {why}" for name, why in wanted.items() if not (manifest.folder / name).is_file()]
    if manifest.finish and not (manifest.folder / manifest.finish[0]).is_file():
        wrong.append(f"finish names {manifest.finish[0]}, which is not in the folder")
    yield finding("files", ", ".join(wanted), wrong)
    if (manifest.folder / "README.md").is_file():
        yield finding("files", "README.md with the settings of both tiers", settings_mistakes(manifest))
    if manifest.requirements.is_file():
        yield finding("files", "requirements with versions, the framework's own pinned", list(_pin_mistakes(manifest)))


def _pin_mistakes(manifest: Manifest) -> Iterator[str]:
    lines = requirement_lines(manifest.requirements)
    if not lines:
        yield "requirements.txt is empty"
    yield from (f"{line!r} has no version" for line in lines if not re.search(r"[=<>~@]", line))
    own = [line for line in [*lines, *manifest.finish[1:]] if _distribution_of(line) == manifest.distribution.lower()]
    if not own:
        yield f"{manifest.distribution}, whose version is the framework's, is not among the requirements"
    if manifest.environment == "core":
        return
    yield from (
        f"{line!r} must be pinned with ==, since results are compared by the framework's version"
        for line in own
        if not re.search(r"(?<![<>!~=])==", line.partition(";")[0])
    )
    if manifest.provider == OWN and not lock_of(manifest.requirements).exists():
        yield f"the lock is missing; run: steptime env lock {manifest.name}"


def _distribution_of(line: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", line)[0].lower()


def _sources(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        try:
            yield path, ast.parse(path.read_text("utf-8"))
        except SyntaxError:
            continue  # the import of the adapter names it


def _texts_of(manifest: Manifest) -> set[str]:
    """Return all texts in the code of a framework and of the libraries that it shares."""
    libraries = Path(steptime.__file__).parent / "libraries"
    folders = [manifest.folder, *(libraries / name for name in manifest.libraries)]
    trees = (tree for folder in folders for _, tree in _sources(folder))
    constants = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def _about_imports(manifest: Manifest) -> Iterator[Finding]:
    packages = ["worker", f"frameworks.{manifest.name}", *(f"libraries.{name}" for name in manifest.libraries)]
    allowed = tuple(f"steptime.{package}." for package in packages)
    foreign = _foreign_modules(manifest)
    wrong = []
    for path, tree in _sources(manifest.folder):
        for name in sorted(_imported(tree, manifest)):
            if name.split(".")[0] == "steptime" and not f"{name}.".startswith(allowed):
                wrong.append(f"{path.name} imports {name}, which is not in {', '.join(packages)}")
            if name.split(".")[0] in foreign:
                wrong.append(f"{path.name} imports {name}, which requirements.txt does not name")
    yield finding("files", "imports of nothing but the worker, named libraries and what is required", wrong)


def _imported(tree: ast.Module, manifest: Manifest) -> set[str]:
    """Return the full names of all modules that a file imports anywhere."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            own = f"steptime.frameworks.{manifest.name}." if node.level else ""
            found.add(own + (node.module or ""))
    return found


def _foreign_modules(manifest: Manifest) -> set[str]:
    """Return modules that are there in steptime's own Python or belong to another framework."""
    lines = requirement_lines(manifest.requirements) if manifest.requirements.is_file() else []
    required = {_distribution_of(line) for line in lines} | {"numpy"}
    core = {
        module
        for module, distributions in packages_distributions().items()
        # A namespace of several, as ``google``, is of the environment's as well as of steptime's own Python.
        if not required & {each.lower() for each in distributions} and len({*distributions}) == 1
    }
    own = manifest.distribution.split("-")[0]
    others = {each.distribution.split("-")[0] for each in load_manifests().values()} - {own}
    return (core | others) - set(sys.stdlib_module_names) - {"steptime", *required}


def _adapter_findings(manifest: Manifest) -> Iterator[Finding]:
    if not (manifest.folder / "adapter.py").is_file():
        return
    adapter = imported_adapter(manifest)
    if "error" in adapter:
        yield Finding(
            "adapter",
            "imports where only numpy is installed",
            ok=False,
            detail=f"{adapter['error']}; import the framework inside functions, and your own files by relative imports",
        )
        return
    wrong = [f"imports {name} with the module; import it inside functions" for name in adapter["foreign"]]
    yield finding("adapter", "imports where only numpy is installed", wrong)
    yield finding("adapter", "FRAMEWORK agrees with the manifest", list(_interface_mistakes(manifest, adapter)))
    if "policies_error" in adapter:
        yield finding("communication", "POLICIES are of the manifest's strategies", [adapter["policies_error"]])
    elif "policies" in adapter:
        unknown = sorted(set(adapter["policies"]) - set(manifest.strategies))
        wrong = [f"POLICIES has {name!r}, a strategy that the manifest has not" for name in unknown]
        yield finding("communication", "POLICIES are of the manifest's strategies", wrong)
    mistakes = list(_contract_mistakes(manifest, adapter))
    yield finding("contract", "CONTRACT gives what the contract suite needs", mistakes)


def _interface_mistakes(manifest: Manifest, adapter: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an adapter's FRAMEWORK lacks that the manifest needs."""
    gives = adapter["gives"]
    if not adapter["typed"]:
        yield "FRAMEWORK = Framework(…) of steptime.worker.framework is missing"
    servers = [name for name, support in manifest.strategies.items() if support.scheduler or _has_servers(name)]
    if servers and "serve" not in gives:
        yield f"FRAMEWORK has no serve=, which {', '.join(servers)} needs for its servers or scheduler"
    if manifest.back_ends and "open_back_end" not in gives:
        yield f"FRAMEWORK has no open_back_end=, but the manifest names {', '.join(manifest.back_ends)}"
    served = [name for name, back_end in manifest.back_ends.items() if back_end.strategy in servers]
    if served and "serve_back_end" not in gives:
        yield f"FRAMEWORK has no serve_back_end=, which {', '.join(served)} needs for its servers or scheduler"


def _contract_mistakes(manifest: Manifest, found: Mapping[str, Any]) -> Iterator[str]:
    if "contract_error" in found:
        yield f"{found['contract_error']}; contract.py must end in CONTRACT = Contract(…) of steptime.worker.framework"
        return
    if set(manifest.loaders) - {SYNTHETIC.name} and not found["batches"]:
        yield "CONTRACT has no batches=, by which the loaders of the manifest are tested"
    without = manifest.contract.without_faults
    yield from (
        f"[contract.without_faults] names {name!r}, which is none of {', '.join(sorted(_FAULTS))}"
        for name in without
        if name not in _FAULTS
    )
    for fault in sorted(_possible_faults(manifest) - set(found["faults"]) - set(without)):
        remedy = "weights=" if fault == STALE_WEIGHTS else f"the fault {fault!r}"
        yield f"CONTRACT has no {remedy}; or say in [contract.without_faults] why {fault!r} cannot exist"


def _possible_faults(manifest: Manifest) -> set[str]:
    """Return the faults that must be planted in a framework with the strategies of the manifest."""
    strategies = [STRATEGIES[name] for name in manifest.strategies if name in STRATEGIES]
    found = {FROZEN_LAYER, STALE_WEIGHTS}
    if any(each.answer in {"mean", "any_order"} and not each.single_baseline for each in strategies):
        found.add(KEPT_GRADIENT)
    if any(each.servers for each in strategies):
        found |= {ZEROS_SENT, PUSH_TWICE}
    if any(each.answer == "any_order" for each in strategies):
        found.add(NEVER_PULLED)
    if "clip_norm" in manifest.training_settings and "allreduce" in manifest.strategies:
        found.add(CLIPPED_APART)
    return found


def _has_servers(strategy: str) -> bool:
    return strategy in STRATEGIES and STRATEGIES[strategy].servers


def imported_adapter(manifest: Manifest) -> dict[str, Any]:
    """Import the adapter in a run folder, in a Python where only numpy and steptime's worker half can be found.

    Returns ``error``; or ``foreign`` (what else it imported), ``typed`` (whether FRAMEWORK is a Framework), ``gives``
    (the fields that FRAMEWORK has), and ``policies`` or ``policies_error`` where there is a communication.py.
    """
    with temporary_folder("import") as folder:
        make_run_folder(folder, manifest.folder, {}, manifest.libraries, manifest.name)
        code = _IMPORT.format(folder=str(folder), name=manifest.name)
        environment = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-P", "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["it ended Python"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found
