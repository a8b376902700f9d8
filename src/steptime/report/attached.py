"""Where the time of a user's own script went, as a section of a report."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from steptime.attached.device_steps import busy_sentence
from steptime.attached.form import (
    AttachedRun,
    AttachedTraining,
    ImportedFigures,
    JobPart,
    StepPart,
    StepSpread,
    listed_ranks,
)
from steptime.attached.gpus import described, use_sentences
from steptime.attached.job_time import JOB_TITLES
from steptime.attached.sampled_lines import without_folders
from steptime.attached.step_parts import title_of
from steptime.attached.throughput import ACTING
from steptime.attached.user_command import script_of
from steptime.document.number_format import UNKNOWN, Shown, count, percent, seconds, time_unit
from steptime.document.section import Column, Layout, Part, Section, SectionTable, Sentences, TableRow, cells
from steptime.phases import REST
from steptime.report.attached_numbers import arithmetic_sentence, memory_sentences, throughput_sentences
from steptime.units import format_bytes, format_seconds, is_undecided

_SMALL = 0.01
"""Gaps below this share of a step are one row."""
_LEAST = 0.001
"""Parts below this share of a step share one row, as small ones do whose interval includes 0."""
_DIFFERENT = 1.2
"""Ranks are listed where the longest part is this many times the mean, and the difference is worth listing."""
_WORTH = 0.03
_DELAYED = 0.2
"""Of the time, in which a process is kept from running, from which on that is more than noise."""
_MOST_RANKS = 4
_MOST_HOSTS = 3
_LONGEST_COMMAND = 60
"""Characters."""
_LAYOUTS: tuple[Layout, ...] = ("wide", "stacked")


def job_title(run: AttachedRun, name: str) -> str:
    """Return the title of a part of the job's time: evaluation, or what a note names that may be another's."""
    return ACTING if name == "evaluation" and any(ACTING in note for note in run.notes) else JOB_TITLES[name]


def headline(run: AttachedRun) -> str:
    """Return what ran, and how long its step took."""
    command = _short_command(run.command)
    if not run.ranks:
        return f"{command}: no step was seen"
    who = _who(run) if run.world > 1 else "workers not known" if run.imported and not run.world else "one process"
    step = _step(run)
    micro = f", {run.micro_steps} micro-steps each" if run.micro_steps and run.micro_steps > 1 else ""
    return f"{command}, {who}: a step takes {step}{micro}"


def _who(run: AttachedRun) -> str:
    """Return how many ranks there are, of how many nothing is on record, and their hosts by name if they are few."""
    names = list(dict.fromkeys(host.name for host in run.hosts))
    hosts = f", on {count(len(run.hosts), 'host')}" if names else ""
    if 1 < len(run.hosts) <= _MOST_HOSTS:
        hosts += f" ({', '.join(names)})" if len(names) > 1 else f" named {names[0]}"
    if len(run.ranks) < run.world:
        return f"{len(run.ranks)} of {count(run.world, 'rank')} on record{hosts}"
    return f"{count(run.world, 'rank')}{hosts.removeprefix(',')}"


def _step(run: AttachedRun) -> str:
    """Return the mean of a step, or the median where the mean's interval is wider than it and the median's is settled.

    Where neither is, the lower of their bounds is all that is known.
    """
    mean, median = run.step_s, run.median_step_s
    is_narrow = mean.low is None or mean.high is None or mean.high - mean.low <= (mean.value or 0.0)
    open_median = is_undecided(median.low, median.high)
    is_better = open_median and (not is_undecided(mean.low, mean.high) or (median.high or 0.0) > (mean.high or 0.0))
    if mean.value is None or is_narrow or is_better:
        return seconds(mean.value, mean.low, mean.high).line
    line = seconds(median.value, median.low, median.high).line
    return f"{line} (median; the mean is {seconds(mean.value, mean.low, mean.high).line})"


def _short_command(words: Sequence[str]) -> str:
    """Return a command, of which the launcher and its options are left out before the script is."""
    command = " ".join([PurePath(words[0]).name, *words[1:]])
    index, script = script_of(words)
    if len(command) > _LONGEST_COMMAND and index > 0:
        launcher = PurePath(words[0]).name
        command = " ".join([f"{launcher} … {PurePath(script).name}", *words[index + 1 :]])
    return command if len(command) <= _LONGEST_COMMAND else f"{command[: _LONGEST_COMMAND - 1]}…"


def _is_small(part: StepPart) -> bool:
    return (part.share or 0.0) < _SMALL


def _is_unmarked(part: StepPart) -> bool:
    """Whether a part is a gap between marks, the rest of a step, or too little garbage collection for a row."""
    return part.gap or part.name == REST or (part.name == "garbage_collection" and _is_small(part))


def part_rows(run: AttachedRun, gaps: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, time, share and note of each part; small gaps share one row."""
    unit = time_unit(run.step_s.value or 0.0)
    unmarked = [part for part in run.parts if _is_unmarked(part)]
    for part in run.parts:
        if part not in unmarked and not part.reason:
            yield title_of(part.name), _time(part, unit).line, _share(part), _note(part, run)
    of_gaps = [part for part in run.parts if part.gap]
    shown = [part for part in of_gaps[:gaps] if not _is_small(part)]
    for part in shown:
        name = part.name.replace("nograd", "no-grad pass").replace(">", " to ")
        yield name, _time(part, unit).line, _share(part), _note(part, run)
    rest = [part for part in unmarked if part not in shown]
    total = sum(part.time_s.value or 0.0 for part in rest)
    share = sum(part.share or 0.0 for part in rest)
    name = "short gaps, rest" if any(part.gap and part.time_s.value for part in rest) else "rest"
    yield (
        name,
        seconds(total, None, None, time_unit(total) if total else unit).text,
        percent(share, None, None).text,
        "",
    )


def _time(part: StepPart, unit: tuple[float, str]) -> Shown:
    """Return the time of a part in the unit that suits it; in that of the step where it is nothing."""
    time = part.time_s
    of_bound = time.high if is_undecided(time.low, time.high) else time.value
    return seconds(time.value, time.low, time.high, time_unit(of_bound) if of_bound else unit)


def _share(part: StepPart) -> str:
    """Return the share of a part: the bound of it where the time is a bound, too."""
    time = part.time_s
    if part.share is None:
        return ""
    if time.high and time.value and is_undecided(time.low, time.high):
        return f"at most {percent(part.share * time.high / time.value, None, None).text}"
    return percent(part.share, None, None).text


def _note(part: StepPart, run: AttachedRun) -> str:
    """Return where a part differs between ranks, else its line in the script, or why it is not known."""
    if part.reason:
        return part.reason
    notes = []
    if part.few is not None:
        notes.append(f"in {len(part.few.numbers)} of {count(part.few.steps, 'step')}")
    if beside := _on_other_clock(part):
        notes.append(beside)
    if by_rank := _by_rank(part, run):
        notes.append(by_rank)
    elif part.where:
        notes.append(without_folders(part.where))
    return "; ".join(notes)


def _by_rank(part: StepPart, run: AttachedRun) -> str:
    values = [value for value in part.ranks_s if value is not None]
    mean, step = part.time_s.value or 0.0, run.step_s.value or 0.0
    if len(values) < 2 or max(values) < _DIFFERENT * mean or max(values) - mean < _WORTH * step:  # noqa: PLR2004
        return ""
    most, least = max(range(len(values)), key=values.__getitem__), min(values)
    waits = run.waited_for
    if part.name == "sync_wait" and waits is not None and waits.ranks:
        return f"for {waits.title}, up to {format_seconds(values[most])}"
    return f"up to {format_seconds(values[most])} on rank {run.ranks[most].rank}, from {format_seconds(least)}"


def delayed_sentence(run: AttachedRun) -> str:
    """Return how long a process was kept from running, and what that spoils; "" where it is little."""
    share = run.noise.get("delayed_share") or 0.0
    if share < _DELAYED:
        return ""
    return (
        f"Other work kept a process from running for {100 * share:.0f} % of the time: times, those of communication "
        "and waiting most of all, are longer for it, and predicted gains are not reliable."
    )


def run_notes(run: AttachedRun) -> Iterator[str]:
    """Yield what holds for all numbers, and what limits them."""
    if run.ranks:
        reasons = ", ".join(f"{amount} {why}" for why, amount in run.left_out_for.items())
        left = f", {run.left_out} left out ({reasons})" if run.left_out else ""
        yield (
            f"Means of {count(run.steps, 'step')}{left}; {100 * run.level:.0f} % intervals within this run: another "
            "run may differ by more."
        )
    if run.device is not None:
        each_s = run.device.event_s
        yield (
            f"Times are the device's, from the last event of a step to that of the next (the host's mean is "
            f"{format_seconds(run.device.host_step_s)}); {busy_sentence(run.device)}. Parts are of "
            f"{count(run.device.parted, 'step')}, in which events take the host {format_seconds(run.device.events_s)}"
            f"{'' if each_s is None else f' (one took {format_seconds(each_s)} at start-up)'}."
        )
    if run.spread is not None:
        yield from _quantiles(run.spread)
    if run.throughput is not None:
        yield from throughput_sentences(run.throughput, len(run.ranks))
    yield from memory_sentences(run.memory)
    yield from use_sentences(run.gpus)
    for each in run.imported:
        yield _origin(each)
    if run.flops and run.arithmetic is not None:
        yield arithmetic_sentence(run.flops, run.flops_by, run.arithmetic)
    elif run.arithmetic is not None and run.throughput is not None and run.throughput.tokens.per_step:
        yield f"MFU is not known: {run.arithmetic.reason}."
    if run.clock_uncertainty_s is not None:
        yield f"Clocks of hosts are known to {format_seconds(run.clock_uncertainty_s)}; no rank is blamed for less."
    yield from (f"note: {note}" for note in run.notes[:2])
    if run.problems:
        yield f"{count(len(run.problems), 'line')} of records set aside: {run.problems[0]}"


def _origin(source: ImportedFigures) -> str:
    """Return where imported figures come from, with further ones and what is not known."""
    values = [f"{name} {value:.4g}" for name, value in source.values.items()]
    made = [f"{name} from {text}" for name, text in source.figures.items()]
    lacking = [f"{name} not known: {reason}" for name, reason in source.unknown.items()]
    return f"{PurePath(source.path).name} ({source.importer}): {'; '.join([*made, *values, *lacking])}."


def _quantiles(spread: StepSpread) -> Iterator[str]:
    if spread.p90_s is None:
        return
    p99 = "" if spread.p99_s is None else f"99 % within {format_seconds(spread.p99_s)}, "
    yield (
        f"Half of the steps take at most {format_seconds(spread.median_s)}, 90 % {format_seconds(spread.p90_s)}, "
        f"{p99}the longest {format_seconds(spread.longest_s)} (step {spread.longest_step})."
    )


def attached_section(run: AttachedRun) -> Section:
    """Return everything that is known of an attached run, for a report."""
    unit = time_unit(run.step_s.value or 0.0)
    warnings = [each for each in (run.not_attached, delayed_sentence(run)) if each]
    ranks = [rank.rank for rank in run.ranks][:_MOST_RANKS]
    columns = [Column("time"), Column("share"), *(Column(f"rank {rank}") for rank in ranks if run.world > 1)]
    rows = _table_rows(run.parts, len(columns) - 2, unit)
    parts: list[Part] = [Sentences(warnings, "warning")]
    if rows:
        table = SectionTable([*columns, Column("where, or why not", "prose")], rows, "part of a step", _LAYOUTS, "Step")
        parts.append(table)
    parts.append(Sentences([each.sentence for each in run.findings], listed=True))
    if run.trainings:
        titles = [Column("ranks"), Column("steps"), Column("step"), Column("restarts")]
        trained = [_training_row(each) for each in run.trainings]
        parts.append(Section("Trainings", [SectionTable(titles, trained, "program", _LAYOUTS, "Trainings")]))
    parts += [*_hosts(run), *_gpus(run)]
    if run.job:
        job = [_job_row(run, part) for part in run.job]
        titles = [Column("time"), Column("share"), Column("count"), Column("ranks", "prose")]
        parts.append(Section("The whole job", [SectionTable(titles, job, "use", _LAYOUTS, "Job")]))
    if run.collectives:
        calls = [
            TableRow(
                f"{each.kind} in {each.region}",
                cells(f"{each.count:.3g}", format_bytes(each.bytes), format_seconds(each.time_s)),
            )
            for each in run.collectives
        ]
        titles = [Column("a step"), Column("bytes"), Column("time")]
        parts.append(
            Section("Collectives", [SectionTable(titles, calls, "kind", _LAYOUTS, "Collectives")], folded=True)
        )
    parts.append(Sentences([*run_notes(run), *run.notes[2:], *run.problems[1:]], "dim"))
    return Section("Where the time of the script goes", parts, verdict=headline(run), id="attached")


def _table_rows(parts: Sequence[StepPart], ranks: int, unit: tuple[float, str]) -> list[TableRow]:
    """Return a row for each part; those next to nothing share one, as those do that are not known for one reason."""
    reasons = Counter(part.reason for part in parts if part.reason)
    shared = [reason for reason, number in reasons.items() if number > 1]
    tiny = [part for part in parts if _is_next_to_nothing(part)]
    joined = tiny if len(tiny) > 1 else []
    rows = [_table_row(part, ranks, unit) for part in parts if part.reason not in shared and part not in joined]
    rows += [_joined_row(joined, ranks, unit)] if joined else []
    for reason in shared:
        names = ", ".join(title_of(part.name) for part in parts if part.reason == reason)
        rows.append(TableRow(names, cells(*[UNKNOWN] * (2 + ranks), reason)))
    return rows


def _is_next_to_nothing(part: StepPart) -> bool:
    """Whether a part is too short for a row of its own, on every rank."""
    longest = max((value for value in part.ranks_s if value is not None), default=0.0)
    if part.reason or part.share is None or longest * part.share > _SMALL * (part.time_s.value or 0.0):
        return False
    return part.share < _LEAST or (_is_small(part) and (part.time_s.low or 0.0) <= 0.0)


def _joined_row(parts: Sequence[StepPart], ranks: int, unit: tuple[float, str]) -> TableRow:
    """Return the sums of parts, with their names for a note; a bound where the sum is next to nothing, too."""
    total, share = sum(part.time_s.value or 0.0 for part in parts), sum(part.share or 0.0 for part in parts)
    each_rank = [
        sum(value or 0.0 for value in values) for values in zip(*(part.ranks_s for part in parts), strict=True)
    ]
    values = [seconds(value, None, None, unit).text for value in each_rank[:ranks]]
    shown = (seconds(total, None, None, unit).text, percent(share, None, None).text)
    if share < _LEAST:
        bound = seconds(total / share * _LEAST if share else 0.0, None, None, unit).text
        shown, values = (f"below {bound}", f"below {100 * _LEAST:g} %"), [UNKNOWN] * ranks
    names = ", ".join(title_of(part.name) for part in parts)
    return TableRow(f"{len(parts)} short parts", cells(*shown, *values, names))


def _table_row(part: StepPart, ranks: int, unit: tuple[float, str]) -> TableRow:
    known = [value for value in part.ranks_s if value is not None]
    values = [seconds(value, None, None, unit).text for value in known[:ranks]] or [UNKNOWN] * ranks
    last = part.reason or "; ".join(filter(None, [part.where or "", _on_other_clock(part)]))
    shown = _time(part, unit)
    return TableRow(
        title_of(part.name), cells((shown.text, shown.interval), _share(part) or UNKNOWN, *values, last or UNKNOWN)
    )


def _on_other_clock(part: StepPart) -> str:
    """Return what a part took the host, where its time is the device's, and else the device."""
    if part.host_s is not None:
        return f"{format_seconds(part.host_s)} on the host"
    return "" if part.device_s is None else f"{format_seconds(part.device_s)} on the device"


def _training_row(training: AttachedTraining) -> TableRow:
    length = training.step_s
    shown = seconds(length.value, length.low, length.high)
    counts = (str(training.ranks), str(training.steps))
    return TableRow(training.program, cells(*counts, (shown.text, shown.interval), str(training.restarts)))


def _hosts(run: AttachedRun) -> list[Part]:
    """Return the hosts with their ranks and devices, where there are several or devices."""
    rows = [
        TableRow(host.name, cells(listed_ranks(host.ranks).partition(" ")[2], ", ".join(host.devices) or UNKNOWN))
        for host in run.hosts
    ]
    if len(rows) < 2 and not any(host.devices for host in run.hosts):  # noqa: PLR2004 - one alone is shown above
        return []
    titles = [Column("ranks", "prose"), Column("devices", "prose")]
    return [Section("Hosts", [SectionTable(titles, rows, "host", _LAYOUTS, "Hosts")])]


def _gpus(run: AttachedRun) -> list[Part]:
    """Return the GPUs with their ranks and what they did."""
    rows = []
    for gpu in run.gpus:
        ranks = listed_ranks(gpu.ranks).partition(" ")[2] or UNKNOWN
        shared = [f"shared with {other}" for other in gpu.other_processes]
        texts = [*described(gpu), *([gpu.reason] if gpu.reason else []), *shared]
        own = UNKNOWN if gpu.memory_of_run is None else format_bytes(gpu.memory_of_run)
        rows.append(TableRow(f"{gpu.index} of {gpu.host}", cells(ranks, own, "; ".join(dict.fromkeys(texts)))))
    titles = [Column("ranks", "prose"), Column("memory"), Column("use", "prose")]
    return [Section("GPUs", [SectionTable(titles, rows, "GPU", _LAYOUTS, "GPUs")])] if rows else []


def _job_row(run: AttachedRun, part: JobPart) -> TableRow:
    spread = max(part.ranks_s) - min(part.ranks_s)
    ranks = ", ".join(map(format_seconds, part.ranks_s[:_MOST_RANKS])) if spread > _SMALL * part.time_s else "alike"
    shown = (format_seconds(part.time_s), percent(part.share, None, None).text)
    return TableRow(job_title(run, part.name), cells(*shown, UNKNOWN if part.count is None else str(part.count), ranks))
