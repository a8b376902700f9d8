"""Under what conditions numbers were measured: the machine, the environments and the marks."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from steptime.analysis.summary_form import Summary, TrialSummary
from steptime.document.number_format import UNKNOWN, count, number
from steptime.document.section import Pairs, Part, Section, Sentences, Verbatim
from steptime.flags import MEANINGS, FlagMeaning, flag_in_report
from steptime.report.trial_names import Names
from steptime.results.consistency import SetAside, counted
from steptime.study.study import further_settings
from steptime.units import format_bytes, format_seconds

_MACHINE = {
    "hostname": "host",
    "cpu": "processor",
    "architecture": "architecture",
    "cores": "cores that may be used",
    "threads": "hardware threads of these",
    "machine_threads": "hardware threads of the machine",
    "quota_cores": "container limit (cores)",
    "memory_bytes": "memory",
    "gpus": "GPUs",
    "gpu_driver": "GPU driver",
    "os": "system",
    "kernel": "kernel",
    "python": "Python of steptime",
    "steptime": "steptime",
}


def conditions_section(summary: Summary, names: Names, study_text: str) -> Section:
    """Return the machine, the marks, and the environment and commands of every trial; a terminal has what is wrong."""
    marks = meanings([flag for trial in summary.trials for flag in trial.flags])
    parts: list[Part] = []
    if marks:
        explained = [(meaning.title, meaning.sentences) for meaning in marks]
        parts.append(Section("What the marks mean", [Pairs(explained)], only="page"))
    if summary.problems:
        aside = [Sentences(summary.problems, listed=True)]
        parts.append(Section(set_aside_in_words(summary.set_aside), aside, style="warning"))
    if summary.datasets:
        folders = [Sentences([each.sentence for each in summary.datasets], listed=True)]
        parts.append(Section("Folders of images", folders))
    trials = [_trial_section(trial, names.full(trial)) for trial in summary.trials]
    note = "Commands run in the run folder of the last launch, one per process."
    study = Section("The study file, word by word", [Verbatim(study_text)], folded=True)
    parts += [
        Section("Machine", [Pairs(machine_rows(summary.machine))], only="page"),
        *_noise_section(summary.trials),
        Section("Environment and exact commands of every trial", trials, note, only="page"),
        *_package_sections(summary.trials, names),
        Section("Study", [study], only="page"),
    ]
    return Section("Conditions", parts, id="conditions")


def _trial_section(trial: TrialSummary, name: str) -> Section:
    """Return how a trial was run; a command that several processes ran is there once."""
    processes = Counter(command_lines(trial))
    commands = [f"{line}{f'  # {each} processes' if each > 1 else ''}" for line, each in processes.items()]
    whole = f"{environment_in_a_line(trial)}; {settings(trial)}; trial {trial.id}"
    return Section(
        name, [Sentences([whole], "dim"), Verbatim("\n".join(commands) or "nothing was started")], folded=True
    )


def _package_sections(trials: Sequence[TrialSummary], names: Names) -> list[Part]:
    """Return the packages of each environment; one whose trials saw other versions names the trials of each."""
    bearers: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        if installed := packages(trial):
            place = (str(trial.environment.get("name") or trial.framework), installed)
            bearers.setdefault(place, []).append(names.full(trial))
    versions = Counter(environment for environment, _ in bearers)
    parts = []
    for (environment, installed), of in bearers.items():
        title = environment if versions[environment] == 1 else f"{environment}: {'; '.join(of)}"
        parts.append(Section(title, [Verbatim(installed)], folded=True))
    return [Section("Packages of every environment", parts, only="page")] if parts else []


def set_aside_in_words(found: Sequence[SetAside]) -> str:
    """``Records set aside: 3 (2 the same launch again, 1 damaged)``."""
    return f"Records set aside: {len(found)} ({counted(found)})"


def machine_in_a_line(machine: Mapping[str, Any]) -> str:
    """``Xeon, 2 cores, 24 GiB, Ubuntu 24.04, host lab-7``; empty when nothing is known."""
    cores = machine.get("cores")
    memory = machine.get("memory_bytes")
    parts = [
        machine.get("cpu"),
        count(cores, "core") if isinstance(cores, int) else None,
        format_bytes(memory) if memory else None,
        _gpus(machine.get("gpus") or []) or None,
        machine.get("os"),
        f"host {machine['hostname']}" if machine.get("hostname") else None,
    ]
    return ", ".join(str(part) for part in parts if part)


def machine_rows(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of everything known of the machine."""
    known = [key for key in _MACHINE if key in machine]
    others = [key for key in machine if key not in _MACHINE]
    return [(_MACHINE.get(key, _spaced(key)), _machine_value(key, machine[key])) for key in [*known, *others]]


def environment_in_a_line(trial: TrialSummary) -> str:
    """``pytorch 2.13.0, Python 3.11.9, environment pytorch (pinned)``."""
    environment = trial.environment
    version = f" {trial.framework_version}" if trial.framework_version else ""
    parts = [f"{trial.framework}{version}"]
    if environment.get("python"):
        parts.append(f"Python {environment['python']}")
    if environment.get("name"):
        kind = f" ({environment['kind']})" if environment.get("kind") else ""
        parts.append(f"environment {environment['name']}{kind}")
    if trial.container:
        parts.append(f"in the container of {trial.container}")
    return ", ".join(parts)


def packages(trial: TrialSummary) -> str:
    """One package with its version per line."""
    found = trial.environment.get("packages") or {}
    return "\n".join(f"{name} {version}" for name, version in sorted(found.items()))


def command_lines(trial: TrialSummary) -> list[str]:
    """One line per process, as a shell reads it."""
    return [shlex.join(command) for command in trial.commands]


_PLACEMENTS = {
    "own": "on cores of their own where there are any",
    "colocated": "on the workers' cores",
    None: "unpinned",
}


def settings(trial: TrialSummary) -> str:
    """What the trial set that its name leaves out: threads, cores, servers, hosts, options and variables."""
    parts = [count(trial.threads, "thread") + " per worker"]
    if trial.cores_per_worker not in (None, trial.threads):
        parts += [count(trial.cores_per_worker, "core") + " per worker"]
    parts += [f"{count(trial.servers, 'server')}, {_PLACEMENTS[trial.server_placement]}"] if trial.servers else []
    parts += [count(trial.hosts, "host")] if trial.hosts > 1 else []
    parts += [f"launches forked from processes that had imported {trial.framework}"] if trial.forked else []
    further = further_settings(partial(getattr, trial))
    parts += [f"{name}={value}" for name, value in {**further, **trial.options, **trial.environment_variables}.items()]
    return ", ".join(parts)


def _noise_section(trials: Sequence[TrialSummary]) -> list[Part]:
    """Return what else the machine did, with the range over trials; JSON has it of each trial."""
    rows = noise_rows([trial.noise for trial in trials])
    title = "What else the machine did (medians over the launches of each trial)"
    return [Section(title, [Pairs(rows)], folded=True, only="page")] if rows else []


def noise_rows(noise: Sequence[Mapping[str, float | None]]) -> list[tuple[str, str]]:
    """Return names and ranges of what else the machine did, in the units that the names' endings say.

    What there was none of is one row, and what is not known another.

    Args:
        noise: of each trial.
    """
    rows, of_none, unknown = [], [], []
    for name in dict.fromkeys(name for own in noise for name in own):
        known = [value for own in noise if (value := own.get(name)) is not None]
        title, least = _noise(name, min(known, default=None))
        most = max(known, default=0.0)
        largest = _noise(name, most)[1]
        if not known:
            unknown.append(title)
        elif most == 0:
            of_none.append(title)
        else:
            rows.append((title, largest if least == largest else f"{least} to {largest}"))
    rows += [("none", ", ".join(of_none))] if of_none else []
    return [*rows, *([("not known", ", ".join(unknown))] if unknown else [])]


def meanings(flags: Sequence[str]) -> list[FlagMeaning]:
    """Return what ``flags`` mean, each meaning once."""
    own = set(map(_meaning, flags))
    return [meaning for meaning in MEANINGS if meaning in own]


def notes(trials: Sequence[TrialSummary]) -> list[str]:
    """Return a line for each kind of mark: how many trials bear it, and what it means in a sentence."""
    flags = list(dict.fromkeys(flag for trial in trials for flag in trial.flags))
    explained = [(meaning, [flag for flag in flags if _meaning(flag) is meaning]) for meaning in meanings(flags)]
    others = [(None, [flag]) for flag in flags if _meaning(flag) is None]
    lines = []
    for meaning, alike in (*explained, *others):
        bearers = sum(any(flag in alike for flag in trial.flags) for trial in trials)
        title = meaning.title if meaning and len(alike) > 1 else alike[0]
        first = f": {meaning.sentences.partition('. ')[0].removesuffix('.')}" if meaning else ""
        lines.append(f"{title} ({bearers} of {count(len(trials), 'trial')}){first}.")
    return lines


def _meaning(flag: str) -> FlagMeaning | None:
    known = flag_in_report(flag)
    return known.meaning if known else None


def _machine_value(key: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
    if key == "gpus":
        return _gpus(value or []) or "none"
    if value is None:
        return UNKNOWN
    return format_bytes(value) if key.endswith("_bytes") else str(value)


def _gpus(gpus: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{gpu.get('name')} ({format_bytes(gpu['memory_bytes'])})" if gpu.get("memory_bytes") else str(gpu.get("name"))
        for gpu in gpus
    )


def _noise(name: str, value: float | None) -> tuple[str, str]:
    # Endings name the unit; what follows them names when it was read.
    stem, when = name, ""
    for moment in ("_before", "_after"):
        if name.endswith(moment):
            stem, when = name.removesuffix(moment), f" {moment[1:]}"
    for ending, write in _UNITS.items():
        if stem.endswith(ending):
            return _spaced(stem.removesuffix(ending)) + when, UNKNOWN if value is None else write(value)
    return _spaced(stem) + when, UNKNOWN if value is None else number(value)


_UNITS: dict[str, Callable[[float], str]] = {
    "_share": lambda value: f"{number(100 * value)} %",
    "_bytes": format_bytes,
    "_hz": lambda value: f"{number(value / 1e9)} GHz",
    "_s": format_seconds,
    "_cores": lambda value: f"{number(value)} cores",
    "_c": lambda value: f"{number(value)} °C",
}


def _spaced(key: str) -> str:
    words = key.replace("_", " ")
    words = words.replace("foreign cpu", "CPU of other processes")
    return words.replace("cpu", "CPU").replace("gpu", "GPU").replace("tcp", "TCP")
