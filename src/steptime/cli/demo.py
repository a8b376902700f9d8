"""``steptime demo``: a recorded race, shown as any other results are."""

import shlex
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import steptime
from steptime.cli.streams import say, warn
from steptime.errors import UsageError
from steptime.plain_file import PlainFolder
from steptime.report.export_formats import PAGE

if TYPE_CHECKING:
    from steptime.cli.reported_results import ReportedResults

STUDY = "four-frameworks"
RECORDING = Path(steptime.__file__).parent / "studies" / "recorded" / f"{STUDY}.tar.xz"
"""A results folder and the profile beside it, made by ``benchmarks/demo/record.py``."""
WORKERS = "2,4,8,16"
CHANGES = (
    "workload=gpt2_tiny",
    "framework=pytorch",
    "strategy=allreduce",
    "workers_per_host=2",
    "interconnect.bandwidth=10Gbit/s",
)
"""What the demo predicts: the measured hosts, several of them, behind an ordinary link."""
_LINES = 51
"""Of the report: a first look has the best of each group and where their steps go, and the page has the rest."""


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Folder for the recorded results and their page.")
    ] = Path("steptime-demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Show the recorded results of a real race: ranking, breakdown and prediction. Nothing is measured or installed."""
    from steptime.cli.console import report_console
    from steptime.cli.predictions import answers
    from steptime.cli.reported_results import print_json_report, print_overview, read_report, write_report_page
    from steptime.fitting.profile import read_profile
    from steptime.predict.query import read_workers
    from steptime.report.terminal import wrapped

    folder = unpack(output)
    profile = output / f"{STUDY}.profile.json"
    found = read_report(folder)
    mark = _recorded(found)
    if as_json:
        warn([mark])
        print_json_report(found)
        return
    console = report_console()
    console.print(wrapped(mark, "", console.options))
    say("")
    page = folder / PAGE
    print_overview(found, page=page, next_steps=(), lines=_LINES)
    question = shlex.join(["steptime", "predict", str(profile), "--workers", WORKERS, *CHANGES])
    say("")
    for answer in answers(read_profile(profile), CHANGES, read_workers(WORKERS)):
        console.print(wrapped(f"Predicted for more hosts, {answer}", "", console.options))
    sys.stdout.flush()
    write_report_page(found, page, notice=mark)
    say("Next:")
    say("  steptime run quickstart  # the same here, with ResNet-50 (minutes; 3 GB)")
    say(f"  {shlex.join(['steptime', 'report', '--all', str(folder)])}")
    say(f"  {question}")


def unpack(target: Path) -> Path:
    """Write the recording into ``target``, where it may lie already; return the results folder in it.

    Raises UsageError where a file in ``target`` has the name of one of the recording and holds something else.
    """
    folder = PlainFolder(target)
    files = recorded_files()
    kept = {name: folder.read(target / name) for name in files if (target / name).exists()}
    if changed := [name for name, data in kept.items() if data != files[name]]:
        message = f"{target / changed[0]} is not the file of the demo; name another folder: steptime demo -o DIR"
        raise UsageError(message)
    for name in files.keys() - kept.keys():
        folder.put(target / name, files[name])
    return target / STUDY


def recorded_files() -> dict[str, bytes]:
    """Return the files of the recording by their names."""
    with tarfile.open(RECORDING) as archive:
        return {member.name: file.read() for member in archive if (file := archive.extractfile(member))}


def _recorded(found: "ReportedResults") -> str:
    """Return where and when the results were measured, in a sentence."""
    from steptime.report.conditions import machine_in_a_line

    machine = {name: value for name, value in found.summary.machine.items() if name != "hostname"}
    launches = (launch for trial in found.summary.trials for launch in found.store.launches(trial.id))
    days = sorted({launch.started_at[:10] for launch in launches})
    return f"Recorded on {machine_in_a_line(machine)}, {' and '.join(days)}. Nothing was measured on this machine."
