"""What ``steptime fit`` prints: how wrong the fit is, and what it predicts nothing without."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich import box
from rich.table import Table
from rich.text import Text

from steptime.attached.summary import attached_run
from steptime.catalog.choices import strategy_named
from steptime.cli.console import PlainConsole
from steptime.cli.streams import print_json, warn
from steptime.curves.reference_models import NULLS
from steptime.errors import UsageError
from steptime.fitting.attached_profile import attached_profile, write_attached_profile
from steptime.fitting.links import FittedTable
from steptime.fitting.profile import HeldOut, NetLink, Profile, ProfileGroup
from steptime.model.measured_links import stored_links
from steptime.predict.held_out import errors_of
from steptime.predict.next_measurement import RESULTS, STUDY
from steptime.report.terminal import empty_table, narrowed, wrapped
from steptime.results.machine import usable_cores
from steptime.results.results_files import results_of
from steptime.units import format_bytes, format_count, format_error, format_seconds

if TYPE_CHECKING:
    from steptime.results.attached_files import AttachedFiles, AttachedHeader
    from steptime.results.store import Store

_STUDY_FILE = "study.yaml"
_WELL_COVERED = 0.8
"""Share of left-out measurements inside their interval of 90 %, below which that is marked."""


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
        write_attached_profile(profile, path, store.path)
    if as_json:
        attached = profile.model_dump(mode="json", by_alias=True)
        print_json({"profile": None if profile.refused else str(path), "attached": attached, "notes": notes})
    else:
        unseen = [f"note: {profile.unseen_exchange}"] if profile.unseen_exchange else []
        warn([*notes, *([] if profile.refused else [*unseen, f"profile: {path}"])])
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


def show_fit(profile: Profile, path: Path) -> None:
    """Print how wrong the models are on what was left out of their fits, what is to be known of them, and what is next.

    Args:
        profile: of a results folder.
        path: where it was written.
    """
    console = PlainConsole()
    tested = [group for group in profile.groups if group.held_out]
    models = format_count(len([group for group in profile.groups if group.parameters]), "model")
    lead = f"{models} fitted to {profile.steps} timed steps. {_tests_in_words(tested)}"
    console.print(wrapped(lead, "bold", console.options))
    if tested:
        console.print()
        console.print(narrowed(_error_table(tested), console, console.options))
        console.print()
    untested = [group.key.name for group in profile.groups if group.parameters and not group.held_out]
    if untested and tested:
        _print_note(console, f"Not tested, since nothing else that was measured predicts them: {'; '.join(untested)}")
    _print_notes(console, profile)
    console.print(Text(f"Next: {shlex.join(predicting_command(profile, path))}"), soft_wrap=True)
    sys.stdout.flush()


def fitted_study(profile: Profile, path: Path) -> tuple[str, str]:
    """Return the paths of the study that was fitted and of its folder, from here; where these are not, placeholders.

    Args:
        profile: what was fitted.
        path: of its file.
    """
    folder = results_of(path, profile.folder)
    if folder is None or not (folder / _STUDY_FILE).is_file():
        return STUDY, RESULTS if folder is None else str(folder)
    return str(folder / _STUDY_FILE), str(folder)


def with_results(text: str, folder: str | None, path: Path) -> str:
    """Return a text whose commands name the results folder of a profile, where it is there.

    Args:
        text: with a placeholder in place of the folder.
        folder: what the profile has of it.
        path: of the profile.
    """
    results = results_of(path, folder)
    return text if results is None else re.sub(rf"\b{RESULTS}\b", lambda _: shlex.quote(str(results)), text)


def predicting_command(
    profile: Profile, path: Path, changes: Sequence[str] = (), workers: Sequence[int] = ()
) -> list[str]:
    """Return the command that predicts ``workers`` on further hosts, by default twice and four times the measured.

    What it adds to ``changes`` are those of a link and a layout that they do not have.
    """
    measured = [(each.deployment, group) for group in profile.groups if group.parameters for each in group.measured]
    most, group = max(measured, key=lambda pair: pair[0].workers)
    counts = ",".join(map(str, workers or (2 * most.workers, 4 * most.workers)))
    exchange = ["strategy=allreduce"] if strategy_named(group.key.strategy).single_baseline else []
    added = [*exchange, f"workers_per_host={most.workers_per_host}", "interconnect.bandwidth=10Gbit/s"]
    given = {change.partition("=")[0] for change in changes}
    hosts = [change for change in added if change.partition("=")[0] not in given]
    return ["steptime", "predict", str(path), "--workers", counts, *changes, *hosts]


def _tests_in_words(tested: Sequence[ProfileGroup]) -> str:
    """Return how many left-out measurements lay in their intervals, and by how much predictions were wrong."""
    held = [each for group in tested for each in group.held_out]
    if not held:
        return (
            "None was tested: that needs a further configuration of a framework and strategy, such as another batch "
            "or number of workers."
        )
    errors = errors_of(held)
    return (
        f"Tested by leaving out one configuration after the other: {errors.inside} of {errors.count} lay inside their "
        f"interval of 90 %; the median error was {format_error(errors.median)} (of the best naive rule "
        f"{format_error(_best_naive(held))})."
    )


def _best_naive(held: Sequence[HeldOut]) -> float:
    """Return the median error of the naive rule that errs least, in percent."""
    return min(errors_of(held, null).median for null in NULLS)


def _error_table(tested: Sequence[ProfileGroup]) -> Table:
    """Return the errors of each model that was tested."""
    several = any(len(group.held_out) > 1 for group in tested)
    table = empty_table()
    table.add_column("model", overflow="fold", min_width=16)
    for title in ("inside", "median error" if several else "error", *(["worst"] if several else []), "best naive"):
        table.add_column(title, justify="right", no_wrap=True)
    for group in tested:
        errors = errors_of(group.held_out)
        inside = f"{errors.inside} of {errors.count}"
        numbers = [errors.median, *([errors.worst] if several else []), _best_naive(group.held_out)]
        style = "" if errors.covered >= _WELL_COVERED else "yellow"
        table.add_row(Text(group.key.name), Text(inside, style=style), *map(format_error, numbers))
    return table


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


def _print_notes(console: PlainConsole, profile: Profile) -> None:
    """Print each reason and note once, with the models that it is about."""
    where: dict[str, list[str]] = {}
    for group in profile.groups:
        for note in [*([group.refused] if group.refused else []), *group.notes]:
            where.setdefault(note, []).append(group.key.name)
    for note, names in where.items():
        about = "all models" if len(names) == len(profile.groups) else "; ".join(dict.fromkeys(names))
        _print_note(console, f"{about}: {note}")


def _print_note(console: PlainConsole, text: str) -> None:
    console.print(wrapped(text, "", console.options))
