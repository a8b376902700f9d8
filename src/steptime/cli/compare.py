"""``steptime compare``: what changed from one measurement to another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptime.cli.arguments import Mistakes, open_results
from steptime.cli.console import report_console
from steptime.cli.streams import print_json, say, warn, wrote
from steptime.errors import UsageError, choices_message
from steptime.report.export_formats import ComparisonFormat, format_help, formats_of
from steptime.units import parse_share
from steptime.user_output import JUNIT, write_user_file

if TYPE_CHECKING:
    from steptime.analysis.compared.sides import ComparedSide

EXIT_SLOWER, EXIT_FAILED = 1, 3
_SHORT = {"environment": "environment_name"}
"""Keys by the word for them that one types."""


def compare(
    first: Annotated[
        Path,
        typer.Argument(metavar="A", help="Results folder of the baseline, or a folder of runs of your own script."),
    ],
    second: Annotated[
        Path | None, typer.Argument(metavar="[B]", help="Results folder that is compared with it (default: A).")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=A,B",
            help="Compare trials in which KEY is A with those in which it is B: framework, environment, strategy, "
            "framework_version, options.NAME, ...",
        ),
    ] = None,
    fail_over: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Exit with 1 if B is shown to be slower by more than this, as 5%."),
    ] = None,
    fail_undecided: Annotated[
        bool, typer.Option("--fail-undecided", help="Exit with 1 too if that is undecided, as with few launches.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format", help=format_help(ComparisonFormat), autocompletion=lambda: list(formats_of(ComparisonFormat))
        ),
    ] = "text",
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Compare two measurements: faster, slower, undecided, or no difference larger than launches would have shown."""
    from steptime.analysis.compared.change import change_between
    from steptime.report.changes import change_sections, headline
    from steptime.report.changes import junit as junit_xml
    from steptime.report.terminal import SectionText, wrapped

    mistakes = Mistakes()
    threshold = mistakes.read("--fail-over", fail_over, _share)
    chosen = mistakes.read("--by", by, _choice)
    formats = formats_of(ComparisonFormat)
    if form not in formats:
        mistakes.add([choices_message("format", form, formats)])
    if second is None and by is None:
        mistakes.add(["name a second results folder, or what to compare within the first: --by KEY=A,B"])
    if fail_undecided and fail_over is None:
        mistakes.add(["--fail-undecided needs --fail-over SHARE, such as --fail-over 5%"])
    mistakes.complain()
    found = change_between(*_sides(first, second or first, chosen), threshold)
    if junit is not None:
        write_user_file(junit, junit_xml(found).encode(), JUNIT)
    if as_json:
        print_json(found.to_json())
    elif write := formats[form].text:
        say(write(found))
    else:
        console = report_console()
        console.print(wrapped(headline(found), "", console.options))
        say("")
        console.print(SectionText(change_sections(found)))
    if junit is not None:
        wrote("JUnit XML", junit)
    if found.fails or (fail_undecided and found.outcome == "undecided"):
        raise typer.Exit(EXIT_SLOWER)
    if threshold is not None and any(each.broken for each in found.unpaired):
        raise typer.Exit(EXIT_FAILED)


def _sides(first: Path, second: Path, chosen: tuple[str, str, str] | None) -> "tuple[ComparedSide, ComparedSide]":
    """Read both sides, and name them as shortly as they can be told apart."""
    from steptime.analysis.compared.sides import attached_folders, attached_sides, side_of

    key = chosen[0] if chosen else None
    names = _short_names(first.absolute(), second.absolute())
    own = [attached_folders(folder) for folder in (first, second)]
    if chosen is None and not all(own):
        _require_studies(first, second)
    if chosen is None and all(own):
        runs = [[open_results(each) for each in found] for found in own]
        return attached_sides(runs, names, [str(first), str(second)])
    stores = [open_results(folder) for folder in dict.fromkeys((first, second))]
    sides = [side_of(store, name, key) for store, name in zip(stores, names, strict=False)]
    for store in stores:
        warn(store.problems)
    one, other = sides[0], sides[-1]
    if chosen is None:
        return one, other
    return one.where(chosen[0], chosen[1]), other.where(chosen[0], chosen[2])


def _require_studies(*folders: Path) -> None:
    """Raise StoreError for a folder without results, a missing one first, and UsageError for runs beside a study."""
    from steptime.analysis.compared.sides import attached_folders
    from steptime.results.store import Store

    for folder in sorted(folders, key=Path.exists):
        if not attached_folders(folder):
            Store.open(folder)
    studies = [folder for folder in folders if not attached_folders(folder)]
    runs = [folder for folder in folders if folder not in studies]
    if studies and runs:
        message = f"{studies[0]} holds a study and {runs[0]} runs of 'steptime attach'; name folders of one kind"
        raise UsageError(message)


def _short_names(first: Path, second: Path) -> list[str]:
    """Return the ends of two paths that tell them apart."""
    for parts in range(1, max(len(first.parts), len(second.parts)) + 1):
        names = ["/".join(each.parts[-parts:]) for each in (first, second)]
        if names[0] != names[1]:
            return names
    return [first.name, second.name]


def _share(text: str) -> float:
    """Return a share; raises ValueError for anything that cannot be a slowdown."""
    found = parse_share(text)
    if found < 0.0:
        message = f"{text!r} is not a share of a slowdown; write for example 5% or 0.05"
        raise ValueError(message)
    return found


def _choice(text: str) -> tuple[str, str, str]:
    """Return key, first and second value of ``KEY=A,B``; raises ValueError for anything else."""
    key, _, values = text.partition("=")
    first, _, second = values.partition(",")
    if not (key and first and second) or "," in second:
        message = f"{text!r} is not KEY=A,B, such as framework=pytorch,mxnet"
        raise ValueError(message)
    if first == second:
        message = f"both values of {key!r} are {first!r}"
        raise ValueError(message)
    return _SHORT.get(key, key), first, second
