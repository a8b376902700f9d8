"""What ``steptime fit`` prints: how wrong the fit is, and what it predicts nothing without."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich import box
from rich.table import Table

from steptime.attached.summary import attached_run
from steptime.cli.console import PlainConsole
from steptime.cli.streams import print_json, say, warn
from steptime.curves.reference_models import NULLS
from steptime.errors import UsageError
from steptime.fitting.attached_profile import attached_profile, write_attached_profile
from steptime.fitting.links import FittedTable
from steptime.fitting.profile import NetLink, Profile, ProfileGroup
from steptime.model.measured_links import stored_links
from steptime.predict.held_out import errors_of
from steptime.report.terminal import empty_table
from steptime.results.machine import usable_cores
from steptime.units import format_bytes, format_count, format_error, format_seconds

if TYPE_CHECKING:
    from steptime.results.attached_files import AttachedFiles, AttachedHeader
    from steptime.results.store import Store


def fit_attached(
    store: "Store",
    recorded: "tuple[AttachedHeader, AttachedFiles]",
    tables: list[NetLink],
    path: Path,
    *,
    as_json: bool,
) -> None:
    """Write the profile of a user's own script; raises UsageError for a run that predicts nothing, and writes none."""
    links = stored_links(store)
    machine = store.machine() or {}
    usable = float(usable_cores(machine) or 0.0)
    run = attached_run(*recorded)
    notes = [each.sentence for each in run.findings if each.kind == "trainings"]
    rows = links.rows if links else []
    profile = attached_profile(run, recorded[1], rows, usable, tables, hardware_threads=machine.get("threads"))
    profile = profile.model_copy(update={"trainings": " ".join(notes) or None})
    if not profile.refused:
        write_attached_profile(profile, path)
    if as_json:
        attached = profile.model_dump(mode="json", by_alias=True)
        print_json({"profile": None if profile.refused else str(path), "attached": attached, "notes": notes})
    else:
        warn([*notes, *([] if profile.refused else [f"profile: {path}"])])
    if profile.refused:
        complain_of_nothing_predicted(store, [profile.refused])


def complain_of_nothing_predicted(store: "Store", reasons: Sequence[str | None]) -> NoReturn:
    """Raise UsageError with each of the ``reasons`` once, for which results predict nothing."""
    reason = "; ".join(dict.fromkeys(filter(None, reasons))) or "no trial has a launch that was timed"
    message = f"no profile is written, for {store.path} predicts nothing: {reason}"
    raise UsageError(message)


def form_of_group(group: ProfileGroup) -> dict[str, object]:
    """A group without its draws, which the profile has."""
    data = group.model_dump(mode="json")
    for parameter in data["parameters"].values():
        del parameter["draws"]
    return data


def show_errors(profile: Profile) -> None:
    """Print how wrong each model is on configurations that were held out, and what is to be known of it."""
    console = PlainConsole()
    models = format_count(len(profile.groups), "model")
    console.print(f"{profile.steps} steps, {models}. Errors on configurations that were held out:")
    table = empty_table()
    table.add_column("model", overflow="fold", min_width=16)
    for title in ("points", "held out", "median", "worst", "in 90 %", "best naive"):
        table.add_column(title, justify="right", no_wrap=True)
    held = [each for group in profile.groups for each in group.held_out]
    rows = [(group.key.name, str(len(group.measured)), group.held_out) for group in profile.groups if group.parameters]
    for name, measured, each in [*rows, *([("all", "", held)] if held else [])]:
        if each:
            errors = errors_of(each)
            nulls = {null: errors_of(each, null).median for null in NULLS}
            own = [
                str(errors.count),
                format_error(errors.median),
                format_error(errors.worst),
                f"{100 * errors.covered:.0f} %",
            ]
            table.add_row(name, measured, *own, format_error(min(nulls.values())))
        else:
            table.add_row(name, measured, "0", *["-"] * 4)
    if rows:
        console.print(table)
    _tell(profile)


def show_link(fitted: FittedTable) -> None:
    """Print a table of nccl-tests beside its model: time and busbw of each size."""
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
            f"{100 * (modelled / row.seconds - 1):+.0f} %",
            f"{bus / giga:.4g}",
            f"{bus * row.seconds / modelled / giga:.4g}",
        )
    PlainConsole().print(shown)


def _tell(profile: Profile) -> None:
    """Print each reason and note once, with the models that it is about."""
    where: dict[str, list[str]] = {}
    for group in profile.groups:
        for note in [*([group.refused] if group.refused else []), *group.notes]:
            where.setdefault(note, []).append(group.key.name)
    for note, names in where.items():
        about = "all models" if len(names) == len(profile.groups) else "; ".join(dict.fromkeys(names))
        say(f"{about}: {note}")
