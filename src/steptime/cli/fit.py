"""``steptime fit``: from measurements to a performance model; ``steptime evidence``: how well such models predict."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steptime.cli.streams import print_json, say, warn

if TYPE_CHECKING:
    from steptime.predict.links import FittedTable
    from steptime.predict.profile import NetLink, Profile, ProfileGroup
    from steptime.results.attached_files import AttachedFiles, AttachedHeader
    from steptime.results.store import Store


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
    """Fit each phase of a step to what was measured, and say how wrong the fit is on points that it did not see."""
    from steptime.cli.arguments import open_results
    from steptime.importers import read_imports
    from steptime.predict.held_out import fit_with_holdout
    from steptime.predict.links import fit_tables
    from steptime.predict.profile import default_profile_path, write_profile

    imported = read_imports(nccl_tests or [], "links")
    tables = [table for records in imported for table in records.links]
    store = open_results(folder)
    if recorded := store.attached():
        gpus = (store.machine() or {}).get("gpus") or [{}]
        of_tables = [each.link for each in fit_tables(tables, gpus[0].get("name"))]
        _fit_attached(store, recorded, of_tables, output or default_profile_path(folder), as_json=as_json)
        return
    profile = fit_with_holdout(store, tables)
    links = fit_tables(tables, profile.machine.gpu)
    path = output or default_profile_path(folder)
    write_profile(profile, path)
    warn([*store.problems, *(note for records in imported for note in records.notes)])
    if as_json:
        from steptime.cli.streams import print_json

        groups = [_form(each) for each in profile.groups]
        seen = [each.to_json() for each in links]
        print_json({"profile": str(path), "steps": profile.steps, "groups": groups, "nccl_tests": seen})
    else:
        _show(profile)
        for each in links:
            _show_link(each)
        warn([f"profile: {path}"])


def _fit_attached(
    store: "Store",
    recorded: "tuple[AttachedHeader, AttachedFiles]",
    tables: "list[NetLink]",
    path: Path,
    *,
    as_json: bool,
) -> None:
    """Write the profile of a user's own script, and say what it predicts nothing without."""
    from steptime.attached.summary import attached_run
    from steptime.predict.attached_profile import attached_profile, write_attached_profile
    from steptime.predict.model.measured_links import stored_links

    links = stored_links(store)
    cores = (store.machine() or {}).get("cores")
    run = attached_run(*recorded)
    notes = [each.sentence for each in run.findings if each.kind == "trainings"]
    profile = attached_profile(run, recorded[1], links.rows if links else [], cores or 1, tables)
    profile = profile.model_copy(update={"trainings": " ".join(notes) or None})
    write_attached_profile(profile, path)
    if as_json:
        from steptime.cli.streams import print_json

        attached = profile.model_dump(mode="json", by_alias=True)
        print_json({"profile": str(path), "attached": attached, "notes": notes})
        return
    warn(notes)
    if profile.refused:
        warn([f"it predicts nothing: {profile.refused}"])
    warn([f"profile: {path}"])


def _form(group: "ProfileGroup") -> dict[str, object]:
    """A group without its draws, which the profile has."""
    data = group.model_dump(mode="json")
    for parameter in data["parameters"].values():
        del parameter["draws"]
    return data


def _show(profile: "Profile") -> None:
    from rich import box
    from rich.table import Table

    from steptime.cli.console import PlainConsole
    from steptime.predict.curve.reference_models import NULLS
    from steptime.predict.held_out import errors_of

    console = PlainConsole()
    console.print(f"{profile.steps} steps, {len(profile.groups)} models. Errors on configurations that were held out:")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", overflow="fold", min_width=16)
    for title in ("points", "held out", "median", "worst", "in 90 %", "best naive"):
        table.add_column(title, justify="right")
    held = [each for group in profile.groups for each in group.held_out]
    rows = [(group.key.name, str(len(group.measured)), group.held_out) for group in profile.groups if group.parameters]
    for name, measured, each in [*rows, *([("all", "", held)] if held else [])]:
        if each:
            errors = errors_of(each)
            nulls = {null: errors_of(each, null).median for null in NULLS}
            own = [str(errors.count), f"{errors.median:.1f} %", f"{errors.worst:.1f} %", f"{errors.covered:.0%}"]
            table.add_row(name, measured, *own, f"{min(nulls.values()):.1f} %")
        else:
            table.add_row(name, measured, "0", *["-"] * 4)
    if rows:
        console.print(table)
    _tell(profile)


def _show_link(fitted: "FittedTable") -> None:
    """Print a table of nccl-tests beside its model: time and busbw of each size."""
    from rich import box
    from rich.table import Table

    from steptime.cli.console import PlainConsole
    from steptime.units import format_bytes, format_seconds

    table, giga = fitted.table, 1e9
    hosts = f"{table.hosts} host{'s'[: table.hosts > 1]}"
    shown = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"{table.name}: {table.ranks} ranks on {hosts}, busbw in GB/s",
        title_justify="left",
    )
    for title in ("bytes", "measured", "model", "error", "busbw", "model"):
        shown.add_column(title, justify="right", no_wrap=True)
    for row, modelled in zip(table.rows, fitted.modelled_s, strict=True):
        bus = table.bus_rate(row)
        shown.add_row(
            format_bytes(row.size),
            format_seconds(row.seconds),
            format_seconds(modelled),
            f"{modelled / row.seconds - 1:+.0%}",
            f"{bus / giga:.4g}",
            f"{bus * row.seconds / modelled / giga:.4g}",
        )
    PlainConsole().print(shown)


def _tell(profile: "Profile") -> None:
    """Print each reason and note once, with the models that it is about."""
    where: dict[str, list[str]] = {}
    for group in profile.groups:
        for note in [*([group.refused] if group.refused else []), *group.notes]:
            where.setdefault(note, []).append(group.key.name)
    for note, names in where.items():
        about = "all models" if len(names) == len(profile.groups) else "; ".join(dict.fromkeys(names))
        say(f"{about}: {note}")


def evidence(
    points: Annotated[Path, typer.Argument(metavar="POINTS.csv", help="Measured scaling curves, one point a row.")],
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Draw the model's samples so many times, and print the mean scores.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print every point and all scores as JSON.")] = False,
) -> None:
    """Predict the large worker counts of measured curves from the small ones, and score it beside null models."""
    from steptime.predict.curve.assessment import assess
    from steptime.predict.curve.table import read_curves

    found = assess(read_curves(points), seeds)
    if as_json:
        print_json(found)
    else:
        _show_scores(found)


def _show_scores(found: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Column, Table

    from steptime.cli.console import PlainConsole

    numbers = ("points", "MAPE", "median", "P90", "bias", "in 90%", "score")
    columns = [Column("of", no_wrap=True), *(Column(name, no_wrap=True, justify="right") for name in numbers)]
    table = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    summary = found["summary"]
    for rows in (
        {"all": summary["all"], **summary["by_class"]},
        summary["by_source"],
        {f"null: {name}": score for name, score in found["null_models"].items()},
        {f"other: {name}": score for name, score in found["reference_models"].items()},
    ):
        for name, score in rows.items():
            if score["n"]:
                table.add_row(name, *_cells(score))
        table.add_section()
    console = PlainConsole()
    console.print(table)
    if len(each := found["seeds"]) > 1:
        mapes, covers = ([one[key] for one in each] for key in ("mape", "coverage90"))
        console.print(
            f"Scores of the model are means over {len(each)} seeds of its samples: their MAPE lies between "
            f"{min(mapes):.2f} and {max(mapes):.2f}, their share in the intervals between {min(covers):.1%} and "
            f"{max(covers):.1%}."
        )


def _cells(score: dict[str, float]) -> list[str]:
    errors = [f"{score[key]:.1f}" for key in ("mape", "median_ape", "p90_ape", "bias")]
    return [str(score["n"]), *errors, f"{score['coverage90']:.0%}", f"{score['interval_score']:.3f}"]
