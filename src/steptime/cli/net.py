"""``steptime net`` and ``steptime peak``: how long messages take, and how quickly devices multiply matrices."""

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from steptime.cli.arguments import Mistakes, count, open_results
from steptime.cli.console import print_rows, stderr_console
from steptime.cli.section_output import FormOption, PageOption, chosen_form
from steptime.errors import Unfinished
from steptime.interruption import Interrupted, unmasked
from steptime.units import parse_bit_rate, parse_bytes, parse_duration

EXIT_WRONG = 1
EXIT_FAILED = 3
EXIT_UNFINISHED = Unfinished.exit_code
_SIZES = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB"
_ROUNDS = 5
_TIME_LIMIT_S = 900.0
"""Of one launch."""


def net(
    back_ends: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BACKEND]...", help="Such as gloo, or 'list' (default: all that are ready)."),
    ] = None,
    workers: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "2",
    sizes: Annotated[str, typer.Option(help="Sizes of one worker's message, separated by commas.")] = _SIZES,
    operations: Annotated[
        str,
        typer.Option(help="Some of allreduce, allreduce_queued, push_pull, incast (default: all of a back end)."),
    ] = "",
    launcher: Annotated[
        str,
        typer.Option(help="local, mpi, emulated, ssh, slurm, ray, allocation, or auto: what fits back end and hosts."),
    ] = "auto",
    hosts: Annotated[
        str | None,
        typer.Option(help="How many emulated hosts (default: one for each worker), or the names of real ones: n0,n1."),
    ] = None,
    interface: Annotated[
        str | None, typer.Option(help="Interface of real hosts, as ib0 (default: the one that leads to the first).")
    ] = None,
    bandwidth: Annotated[str | None, typer.Option(help="Bandwidth of each emulated link, such as 100Mbit/s.")] = None,
    delay: Annotated[str | None, typer.Option(help="Delay between emulated hosts, one way, such as 2ms.")] = None,
    servers: Annotated[int, typer.Option(help="Number of servers of push_pull.")] = 1,
    launches: Annotated[int, typer.Option(min=1, help="Fresh processes for each back end and worker count.")] = 3,
    repeats: Annotated[int, typer.Option(min=_ROUNDS, help="Timed runs of a size in each launch, at most.")] = 50,
    budget: Annotated[str | None, typer.Option(help="Begin no launch after this time, for example 8m.")] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Results folder: one of its own, or a study's.")
    ] = Path("steptime-results/net"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be measured; run nothing.")] = False,
    html: PageOption = None,
    form: FormOption = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/net.md) and nothing else.")] = False,
) -> None:
    """Time messages over the back ends of frameworks, check the sums, and fit latencies and bandwidth."""
    from steptime.catalog.accelerators import find_accelerators
    from steptime.catalog.manifest import load_manifests
    from steptime.cli.messages import print_back_ends, print_found, print_plan
    from steptime.cli.progress import LiveObserver
    from steptime.expansion.site import site_of_messages
    from steptime.runner.message_timing import NetRun
    from steptime.runner.net_plan import (
        NetQuery,
        back_ends_named,
        back_ends_of,
        net_plan_of,
        parse_hosts,
        parse_operation,
        ready_back_ends,
    )
    from steptime.study.quantities import delay as emulated_delay

    form = chosen_form(form, as_json=as_json)
    manifests = load_manifests()
    known = back_ends_of(manifests)
    if back_ends == ["list"]:
        print_back_ends(form, html)
        return
    mistakes = Mistakes()
    if hosts is not None and not hosts.strip(" ,"):
        mistakes.add(["--hosts names no host; write a number, or names as n0,n1"])
    emulated_hosts, real_hosts = mistakes.read(
        "--hosts", hosts or "", partial(parse_hosts, launcher=launcher, interface=interface)
    ) or (None, None)
    query = NetQuery(
        workers=mistakes.each("--workers", workers, count),
        sizes=mistakes.each("--sizes", sizes, parse_bytes),
        operations=mistakes.each("--operations", operations, parse_operation),
        launcher=launcher,
        hosts=emulated_hosts,
        bandwidth_bits_per_s=mistakes.read("--bandwidth", bandwidth, parse_bit_rate),
        delay_s=mistakes.read("--delay", delay, emulated_delay) or 0.0,
        servers=servers,
        rounds=_ROUNDS,
        runs=-(-repeats // _ROUNDS),
        device_count=len(find_accelerators()),
    )
    budget_s = mistakes.read("--budget", budget, parse_duration)
    named, unknown = back_ends_named(back_ends or [], known)
    mistakes.add(unknown)
    mistakes.complain()
    query = replace(query, site=site_of_messages(launcher, real_hosts))
    wanted, missing = (named, []) if back_ends else ready_back_ends(known)
    plan = net_plan_of(wanted, query)
    plan.skipped[:0] = missing
    if dry_run:
        print_plan(plan, launches, output, form, html)
        return

    console = stderr_console()
    again = shlex.join(["steptime", *sys.argv[1:]])
    try:
        with unmasked(), LiveObserver(console) as observer:
            for line in plan.skipped:
                observer.note(f"skipped: {line}")
            counts = NetRun(plan, manifests, output, launches, _TIME_LIMIT_S, budget_s, observer, query.site).run()
    except Interrupted as stop:
        stop.add_note(f"everything measured is kept in {output}")
        stop.add_note(f"resume with: {again}")
        raise
    print_found(output, form, html)
    if counts.not_run:
        console.print(f"the budget left out {counts.not_run} launches; to continue: {again}")
    if counts.wrong:
        sys.exit(EXIT_WRONG)
    if counts.failed:
        sys.exit(EXIT_FAILED)
    if counts.not_run:
        sys.exit(EXIT_UNFINISHED)


def peak(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="A results folder: measure what its trials use, and keep it there."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects and nothing else.")] = False,
) -> None:
    """Measure how quickly devices multiply matrices, while nothing else runs; reports then have MFU."""
    from steptime.cli.progress import LiveObserver
    from steptime.report.ranking import flop_rate
    from steptime.runner.machine_peaks import measure_for, measure_peaks, settings_of_machine

    with LiveObserver(stderr_console()) as observer:
        if folder is None:
            found = measure_peaks(settings_of_machine(), observer)
        else:
            found = measure_for(open_results(folder), observer)
    rows = [
        {
            **each.model_dump(mode="json"),
            "threads": each.threads or None,
            **({} if as_json else {"flop_per_s": flop_rate(each.interval).line, "library": each.by}),
        }
        for each in found
    ]
    titles = {"device": "device", "precision": "precision", "threads": "threads", "flop_per_s": "products"}
    print_rows(rows, {**titles, "library": "by"}, as_json=as_json)
    if not found:
        sys.exit(EXIT_FAILED)
