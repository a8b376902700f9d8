"""``steptime fit``: from measurements to a performance model."""

from pathlib import Path
from typing import Annotated

import typer

from steptime.cli.arguments import open_results
from steptime.cli.streams import print_json, warn


def fit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Profile to write (default: DIR.profile.json).")
    ] = None,
    nccl_tests: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Output of all_reduce_perf of nccl-tests on these hosts, as text or JSON.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print parameters and held-out errors as JSON.")] = False,
) -> None:
    """Fit each phase of a step to what was measured, and say how wrong the fit is on points that it did not see.

    Results that predict nothing get no profile, and exit code 2.
    """
    from steptime.cli.fitted_profile import (
        complain_of_nothing_predicted,
        fit_attached,
        form_of_group,
        show_fit,
        show_link,
    )
    from steptime.fitting.links import fit_tables
    from steptime.fitting.profile import write_profile
    from steptime.importers import read_imports
    from steptime.predict.held_out import fit_with_holdout
    from steptime.results.results_files import default_profile_path
    from steptime.user_output import PROFILE, require_free

    imported = read_imports(nccl_tests or [], "links")
    tables = [table for records in imported for table in records.links]
    store = open_results(folder)
    path = output or default_profile_path(folder)
    require_free(path, PROFILE)
    if recorded := store.attached():
        gpus = (store.machine() or {}).get("gpus") or [{}]
        of_tables = [each.link for each in fit_tables(tables, gpus[0].get("name"))]
        fit_attached(store, recorded, of_tables, path, as_json=as_json)
        return
    profile = fit_with_holdout(store, tables)
    links = fit_tables(tables, profile.machine.gpu)
    predicts = any(group.refused is None for group in profile.groups)
    if predicts:
        write_profile(profile, path, store.path)
    warn([*store.problems, *(note for records in imported for note in records.notes)])
    if as_json:
        groups = [form_of_group(each) for each in profile.groups]
        seen = [each.to_json() for each in links]
        print_json(
            {"profile": str(path) if predicts else None, "steps": profile.steps, "groups": groups, "nccl_tests": seen}
        )
    else:
        if predicts:
            show_fit(profile, path)
        for each in links:
            show_link(each)
        warn([f"profile: {path}"] if predicts else [])
    if not predicts:
        complain_of_nothing_predicted(store, [group.refused for group in profile.groups])
