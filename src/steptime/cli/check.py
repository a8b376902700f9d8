"""``steptime check``: does a framework train what the reference trains, and can its step be taken apart?"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from steptime.frameworks.manifest import Manifest
    from steptime.runner.framework_check import Finding

EXIT_FAILED = 1


def _complete_framework() -> list[str]:
    from steptime.frameworks.manifest import load_manifests

    return list(load_manifests())


def check(
    name: Annotated[
        str, typer.Argument(help="A framework of steptime list frameworks.", autocompletion=_complete_framework)
    ],
    workload: Annotated[
        str | None,
        typer.Option(help="What to train [default: lenet5, or the first workload of the framework's distribution]."),
    ] = None,
    files_only: Annotated[bool, typer.Option("--files-only", help="Look at its files and train nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Check a framework: its files, what each strategy computes with one and two workers, the breakdown of its step.

    Ends with exit code 1 when something does not hold. Results are not kept.
    """
    from steptime.cli.tables import print_rows
    from steptime.errors import UsageError, choices_message
    from steptime.frameworks.manifest import manifest_named
    from steptime.runner.framework_check import file_findings, usual_workload
    from steptime.workloads.table import LIBRARY

    manifest = manifest_named(name)
    chosen = workload or usual_workload(manifest)
    if chosen not in LIBRARY:
        raise UsageError(choices_message("workload", chosen, LIBRARY))
    findings = file_findings(manifest)
    if not files_only and all(finding.ok for finding in findings):
        findings += _launched(manifest, chosen)
    rows = [
        {"subject": each.subject, "what": each.what, "ok": each.ok, "detail": each.detail or None} for each in findings
    ]
    print_rows(
        rows, {"subject": "checked", "what": "what must hold", "ok": "holds", "detail": "found"}, as_json=as_json
    )
    if not all(finding.ok for finding in findings):
        sys.exit(EXIT_FAILED)


def _launched(manifest: "Manifest", workload: str) -> "list[Finding]":
    from steptime.cli.plan import plan_study
    from steptime.cli.progress import LiveObserver, stderr_console
    from steptime.measurements.store import Store
    from steptime.runner.expansion import skipped_in_words
    from steptime.runner.framework_check import run_findings, study_text

    with TemporaryDirectory(prefix="steptime-check-") as scratch:
        study, results = Path(scratch, "check.yaml"), Path(scratch, "results")
        study.write_text(study_text(manifest, workload), encoding="utf-8")
        plan = plan_study(str(study), [], results, None)
        with LiveObserver(stderr_console()) as observer:
            plan.to_run(observer).go()
        skipped = skipped_in_words(plan.expansion.skipped)
        return run_findings(Store.open(results), manifest, plan.expansion.trials, skipped)
