"""``steptime frameworks`` and ``steptime check``: adding one of your own, and whether it meets what is demanded.

``steptime workloads``: begin with a module of your own.
"""

import re
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from steptime.catalog.manifest import Manifest, load_manifests, manifest_named
from steptime.catalog.workloads.table import LIBRARY
from steptime.cli.console import report_console, stderr_console, whole_words
from steptime.cli.progress import LiveObserver
from steptime.cli.streams import print_json, say, warn
from steptime.errors import UsageError, choices_message
from steptime.runner.extending.template import write_framework, write_workload
from steptime.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.runner.extending.files import Finding

app = typer.Typer(no_args_is_help=True)

EXIT_FAILED = 1
_RAISED = re.compile(r"(?P<error>(?<![\w-])[A-Za-z_]\w*): [^;]*?\((?P<line>\S+:\d+) in .*?\)(?= \(|; |$)")
"""In what is wrong: an exception of a worker with the line that raised it."""
_MARKED = 8
"""Columns ahead of a demand, which hold whether it is met."""


@app.callback()
def _group() -> None:
    """Create a framework of your own (steptime list frameworks shows those that are there)."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits and '_'.")],
    folder: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Folder of the package (default: NAME).")
    ] = None,
) -> None:
    """Write a package with a small framework that runs: install it, check it, then put your own in its place."""
    target = folder or Path(name)
    say(*map(str, write_framework(name, target)))
    # The pip of the shell is often another Python's.
    install = shlex.join([sys.executable, "-m", "pip", "install", "-e", str(target)])
    say("", f"next: {install}", f"then: steptime check {name}")


def complete_framework() -> list[str]:
    """Return the names that a shell completes."""
    return list(load_manifests())


def check(
    name: Annotated[
        str, typer.Argument(help="A framework of steptime list frameworks.", autocompletion=complete_framework)
    ],
    workload: Annotated[
        str | None,
        typer.Option(help="What to train (default: lenet5, or the first workload of the framework's distribution)."),
    ] = None,
    files_only: Annotated[bool, typer.Option("--files-only", help="Look at its files and train nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Check a framework: its files, what each strategy computes, its threads, its breakdown, its loaders, its end.

    What it demands is what the contract suite demands; docs/extending.md has the list.

    Ends with exit code 1 when something does not hold. Results are not kept.
    """
    from steptime.execution.host import busy_clause  # noqa: PLC0415 - other verbs run nothing
    from steptime.runner.extending.check import launch_findings, usual_workload  # noqa: PLC0415 - likewise
    from steptime.runner.extending.files import file_findings  # noqa: PLC0415 - likewise

    manifest = _manifest(name)
    chosen = usual_workload(manifest) if workload is None else workload
    if chosen not in LIBRARY:
        raise UsageError(choices_message("workload", chosen, LIBRARY))
    findings = file_findings(manifest)
    launched = not files_only and all(finding.ok for finding in findings)
    if launched:
        if busy := busy_clause():
            warn([f"launches wait for processors{busy}: the check takes longer"])
        with LiveObserver(stderr_console()) as observer:
            findings += launch_findings(manifest, chosen, observer)
    if as_json:
        print_json([{**asdict(each), "detail": each.detail or None} for each in findings])
    else:
        print_findings(name, findings, launched=launched)
    if not all(finding.ok for finding in findings):
        sys.exit(EXIT_FAILED)


def print_findings(name: str, findings: "Sequence[Finding]", *, launched: bool) -> None:
    """Print what must hold by what it is of, with what was found, and at the end what does not hold."""
    console, shown = report_console(), set[str]()
    for subject in dict.fromkeys(each.subject for each in findings):
        console.print(Text(subject, "bold"))
        for each in (finding for finding in findings if finding.subject == subject):
            detail = _RAISED.sub(partial(_once, shown), each.detail)
            sentence = f"{each.what}: {detail}" if detail else each.what
            lines = whole_words(sentence, console.width - _MARKED)
            console.print(
                Text.assemble(("  ok    ", "green") if each.ok else ("  WRONG ", "red"), lines[0]), soft_wrap=True
            )
            for line in lines[1:]:
                console.print(" " * _MARKED + line, soft_wrap=True)
    wrong = [each for each in findings if not each.ok]
    total = format_count(len(findings), "demand")
    verdict = [f"{len(wrong)} of {total} not met, marked WRONG above." if wrong else f"{name} meets {total}."]
    if wrong and not launched:
        verdict.append("Nothing was launched: that follows once its files meet theirs.")
    say("", *verdict)


def _once(shown: set[str], raised: re.Match[str]) -> str:
    """Return an error with its line; of one that was ``shown`` already, which it may be of each launch, its name."""
    if raised[0] in shown:
        return f"{raised['error']} as above ({raised['line']})"
    shown.add(raised[0])
    return raised[0]


def _manifest(name: str) -> Manifest:
    """Return the framework's manifest; raises UsageError with the command that takes a study or a new package."""
    from steptime.study.study_file import shipped_studies  # noqa: PLC0415 - help reads no study

    path, known = Path(name), load_manifests()
    if name not in known and (path.suffix in {".yaml", ".yml"} or name in shipped_studies()):
        message = f"{name} is a study, and check is for frameworks; to check a study: steptime run {name} --dry-run"
        raise UsageError(message)
    if name not in known and path.suffix == ".py":
        message = (
            f"{name} is a module, and check is for frameworks; a study checks a module of yours before it is timed: "
            "steptime workloads new NAME writes both"
        )
        raise UsageError(message)
    if name not in known and (path / "pyproject.toml").is_file():
        install = shlex.join([sys.executable, "-m", "pip", "install", "-e", name])
        message = f"no framework {name!r} is installed; install the folder first: {install}"
        raise UsageError(message)
    return manifest_named(name)


workloads_app = typer.Typer(no_args_is_help=True)


@workloads_app.callback()
def _workloads_group() -> None:
    """Create a workload of your own (steptime list workloads shows those that come with steptime)."""


@workloads_app.command("new")
def new_workload(
    name: Annotated[
        str, typer.Argument(help="Name of the workload and its files: lower-case letters, digits and '_'.")
    ],
    folder: Annotated[Path | None, typer.Option("-o", "--output-dir", help="Folder of the files (default: .).")] = None,
    framework: Annotated[
        str,
        typer.Option(help="Framework that trains it: pytorch, jax, tensorflow …", autocompletion=complete_framework),
    ] = "pytorch",
) -> None:
    """Write a module with its batches, and a study that races it; put your own in its place."""
    files = write_workload(name, folder or Path(), framework)
    say(*map(str, files))
    say("", f"next: steptime run {files[-1]}")
