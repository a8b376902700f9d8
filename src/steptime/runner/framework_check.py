"""The check of one framework: its files, the import of its adapter, what it computes, and the breakdown of its step.

``file_findings`` looks at the folder and starts no launch. ``launch_findings`` runs a small study of all strategies of
the framework, and reads from its records whether each strategy computes what the reference computes, trains with one
and two workers, and can be taken apart.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from steptime.environments.locks import requirement_lines
from steptime.frameworks.manifest import FILE, Manifest
from steptime.launchers.table import LAUNCHERS
from steptime.measurements.ablation.breakdown import break_down
from steptime.measurements.store import Store
from steptime.measurements.verdicts import TrialVerdict
from steptime.plugins import OWN
from steptime.runner.expansion import skipped_in_words
from steptime.runner.plan import plan_study
from steptime.runner.progress import Observer
from steptime.runner.run_folder import make_run_folder
from steptime.runner.settings_table import settings_mistakes
from steptime.runner.study_run import StudyRun
from steptime.study.loaders import LOADERS, SYNTHETIC
from steptime.study.strategies import SINGLE, STRATEGIES
from steptime.study.trial import Trial
from steptime.workloads.table import LIBRARY

_TYPES = {"bool": bool, "int": int, "float": float, "str": str}
_SMALL = "lenet5"
_LARGEST_GAP = 0.15
"""Of the step: phases that miss more of it in a quick ablation run do not account for the step."""
_WORKERS = (1, 2)

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
    return [*_about_strategies(manifest), *_about_values(manifest), *_about_files(manifest), *_about_adapter(manifest)]


def _finding(subject: str, what: str, wrong: Sequence[str]) -> Finding:
    return Finding(subject, what, ok=not wrong, detail="; ".join(wrong))


def _about_strategies(manifest: Manifest) -> Iterator[Finding]:
    wrong = [
        f"[strategies.{name}] is no strategy of steptime; choose among {', '.join(STRATEGIES)}"
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
    yield _finding("manifest", "strategies that can be started, single among them", wrong)


def _about_values(manifest: Manifest) -> Iterator[Finding]:
    wrong = [] if manifest.python else ["python is empty; name the versions that the framework runs on"]
    wrong += [f"python {each!r} is no version such as '3.11'" for each in manifest.python if not _is_version(each)]
    if manifest.devices[:1] != ["cpu"] or manifest.precisions[:1] != ["fp32"]:
        wrong.append("devices must begin with 'cpu' and precisions with 'fp32', in which frameworks are compared")
    if SYNTHETIC.name not in manifest.loaders:
        wrong.append("loaders must have 'synthetic', which the equivalence check feeds; 'native' only where it runs")
    wrong += [f"loader {each!r} is none of {', '.join(LOADERS)}" for each in manifest.loaders if each not in LOADERS]
    yield _finding("manifest", "Python versions, devices, precisions and loaders", wrong)
    wrong = []
    for name, option in manifest.options.items():
        values = [option.default, *option.choices]
        if any(type(value) is not _TYPES[option.type] for value in values):
            wrong.append(f"[options.{name}] is of type {option.type}, but has the values {values}")
        if option.choices and option.default not in option.choices:
            wrong.append(f"[options.{name}] has the default {option.default!r}, which is none of {option.choices}")
        wrong += [
            f"[options.{name}] names the strategy {each!r}, which the manifest has not"
            for each in option.strategies
            if each not in manifest.strategies
        ]
    yield _finding("manifest", "options whose defaults are values that they may have", wrong)


def _is_version(text: str) -> bool:
    return re.fullmatch(r"3\.\d+", text) is not None


def _about_files(manifest: Manifest) -> Iterator[Finding]:
    wanted = {
        FILE: "the manifest",
        "adapter.py": "ends in FRAMEWORK = Framework(open_session=…)",
        "requirements.txt": "what the environment needs",
        "README.md": "what this framework does differently",
    }
    wrong = [f"{name} is missing: {why}" for name, why in wanted.items() if not (manifest.folder / name).is_file()]
    if manifest.finish and not (manifest.folder / manifest.finish[0]).is_file():
        wrong.append(f"finish names {manifest.finish[0]}, which is not in the folder")
    yield _finding("files", ", ".join(wanted), wrong)
    if (manifest.folder / "README.md").is_file():
        yield _finding("files", "README.md with the settings of both tiers", settings_mistakes(manifest))
    if manifest.requirements.is_file():
        lines = requirement_lines(manifest.requirements)
        wrong = [f"{line!r} has no version" for line in lines if not re.search(r"[=<>~@]", line)]
        named = [re.split(r"[^A-Za-z0-9._-]", line)[0].lower() for line in [*lines, *manifest.finish[1:]]]
        if manifest.distribution.lower() not in named:
            wrong.append(f"{manifest.distribution}, whose version is the framework's, is not among them")
        yield _finding("files", "requirements with versions, the framework's distribution among them", wrong)


def _about_adapter(manifest: Manifest) -> Iterator[Finding]:
    if not (manifest.folder / "adapter.py").is_file():
        return
    found = imported_adapter(manifest)
    if "error" in found:
        yield Finding(
            "adapter",
            "imports where only numpy is installed",
            ok=False,
            detail=f"{found['error']}; import the framework inside functions, and your own files by relative imports",
        )
        return
    wrong = [f"imports {name} with the module; import it inside functions" for name in found["foreign"]]
    yield _finding("adapter", "imports where only numpy is installed", wrong)
    wrong = [] if found["typed"] else ["there is no FRAMEWORK = Framework(…) of steptime.worker.framework"]
    servers = [name for name, each in manifest.strategies.items() if each.scheduler or _has_servers(name)]
    if servers and "serve" not in found["gives"]:
        wrong.append(f"FRAMEWORK has no serve=, which {', '.join(servers)} needs for its servers or scheduler")
    if manifest.back_ends and "open_back_end" not in found["gives"]:
        wrong.append(f"FRAMEWORK has no open_back_end=, but the manifest names {', '.join(manifest.back_ends)}")
    yield _finding("adapter", "FRAMEWORK gives what the manifest says", wrong)
    if "policies" in found or "policies_error" in found:
        wrong = [found["policies_error"]] if "policies_error" in found else []
        unknown = sorted(set(found.get("policies", ())) - set(manifest.strategies))
        wrong += [f"POLICIES has {name!r}, a strategy that the manifest has not" for name in unknown]
        yield _finding("communication", "POLICIES are of the manifest's strategies", wrong)


def _has_servers(strategy: str) -> bool:
    return strategy in STRATEGIES and STRATEGIES[strategy].servers


def imported_adapter(manifest: Manifest) -> dict[str, Any]:
    """Import the adapter in a run folder, in a Python where only numpy and steptime's worker half can be found.

    Returns ``error``; or ``foreign`` (what else it imported), ``typed`` (whether FRAMEWORK is a Framework), ``gives``
    (the fields that FRAMEWORK has), and ``policies`` or ``policies_error`` where there is a communication.py.
    """
    with TemporaryDirectory(prefix="steptime-check-") as folder:
        make_run_folder(Path(folder), manifest.folder, {}, manifest.libraries, manifest.name)
        code = _IMPORT.format(folder=folder, name=manifest.name)
        environment = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-P", "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["it ended Python"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def usual_workload(manifest: Manifest) -> str:
    """Return the workload of a check: the first that the framework's own distribution brings, or else LeNet-5."""
    if manifest.provider == OWN:
        return _SMALL
    return next((name for name in LIBRARY if LIBRARY.provider(name) == manifest.provider), _SMALL)


def study_text(manifest: Manifest, workload: str) -> str:
    """Return the study that launches every strategy of a framework once, checks it and takes its step apart."""
    study = {
        "version": 1,
        "name": f"check-{manifest.name}",
        "question": f"Does {manifest.name} train as the reference does?",
        "frameworks": [manifest.name],
        "workloads": [{"name": workload, "batch_per_worker": 16}],
        "strategies": list(manifest.strategies),
        "loaders": [SYNTHETIC.name],
        "workers": list(_WORKERS),
        "launches": {"min": 1, "max": 1},
        "seconds_per_launch": 0.2,
        "steps": {"warmup": 3, "min": 5, "max": 50},
        "breakdown": {"launches": 1, "seconds": 2.0},
    }
    text = StringIO()
    YAML().dump(study, text)
    return text.getvalue()


def launch_findings(manifest: Manifest, workload: str, observer: Observer) -> list[Finding]:
    """Launch every strategy of a framework, in a scratch folder, and return what its records show.

    Makes the framework's environment if it is not there yet.
    """
    with TemporaryDirectory(prefix="steptime-check-") as scratch:
        study, results = Path(scratch, "check.yaml"), Path(scratch, "results")
        study.write_text(study_text(manifest, workload), encoding="utf-8")
        plan = plan_study(str(study), [], results, None)
        StudyRun(plan, observer).run()
        skipped = skipped_in_words(plan.expansion.skipped)
        return _of_records(Store.open(results), manifest, plan.expansion.trials, skipped)


def _of_records(store: Store, manifest: Manifest, trials: Sequence[Trial], skipped: Sequence[str]) -> list[Finding]:
    verdicts = store.verdicts()
    launched = {trial.strategy for trial in trials}
    findings = [
        Finding(name, "can be launched here", ok=False, detail="; ".join(skipped))
        for name in manifest.strategies
        if name not in launched
    ]
    for trial in trials:
        subject = f"{trial.strategy}, {trial.workers} worker{'s' if trial.workers > 1 else ''}"
        verdict = verdicts.get(trial.id)
        findings.append(
            Finding(subject, "computes what the reference computes", ok=not verdict, detail=_reason(verdict))
        )
        if not verdict:
            findings += _about_launches(store, trial, subject)
    return findings


def _reason(verdict: TrialVerdict | None) -> str:
    return verdict["reason"] if verdict else ""


def _about_launches(store: Store, trial: Trial, subject: str) -> Iterator[Finding]:
    failed = [str(launch.reason) for launch in store.launches(trial.id) if launch.status != "ok"]
    yield _finding(subject, "trains and is timed", failed)
    ablations = list(store.ablations(trial.id))
    broken_down = break_down(trial, ablations, [])
    if broken_down is None:
        reasons = [str(each.reason) for each in ablations] or ["no ablation launch was begun"]
        yield Finding(subject, "its step can be taken apart", ok=False, detail="; ".join(dict.fromkeys(reasons)))
        return
    missing = [name for name, phase in broken_down.phases.items() if phase is None]
    gap = f"the phases miss {broken_down.closure_error:.0%} of the step"
    unknown = f", {', '.join(missing)} unknown" if missing else ""
    yield Finding(
        subject, "its step can be taken apart", ok=broken_down.closure_error <= _LARGEST_GAP, detail=gap + unknown
    )
