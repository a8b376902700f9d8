"""From the files of an attached run to what a report shows of it."""

from collections.abc import Callable, Iterator
from itertools import chain

from steptime.attached.attempts import HostOfRanks, attempts_of
from steptime.attached.device_steps import device_time, devices_of_ranks
from steptime.attached.findings import AttachedFindings, findings_of
from steptime.attached.first_findings import described_trainings, first_findings
from steptime.attached.form import AttachedHost, AttachedRank, AttachedRun, ImportedFigures
from steptime.attached.gpus import gpu_uses, why_no_gpus
from steptime.attached.job_time import CommandTime, job_parts
from steptime.attached.memory import memory_of_ranks
from steptime.attached.processor_use import delayed_share
from steptime.attached.step_flops import arithmetic, step_flops
from steptime.attached.step_kinds import pass_notes
from steptime.attached.step_parts import (
    KeptSteps,
    collective_counts,
    input_notes,
    median_step_length,
    step_length,
    step_parts,
)
from steptime.attached.step_selection import kept_steps, selection_notes
from steptime.attached.step_spread import step_histogram, step_spread, step_windows
from steptime.attached.straggler import whom_ranks_wait_for
from steptime.attached.throughput import batch_notes, sample_notes, throughput
from steptime.attached.trainings import trainings_of
from steptime.flags import amount, stored_flag_text
from steptime.results.attached_files import AttachedFiles, AttachedHeader
from steptime.results.attached_lines import MEAN
from steptime.results.consistency import sentences
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.statistics.interval import LEVEL, more_values
from steptime.units import format_count

_NOT_TRAINED = "processes were attached ({seen}) and none of them trained a step that steptime knows; seen: {what}"
_WHY = "without-step"
"""Of a line about a process, what it did in place of training."""
_SIGHTS = {
    "forward": ("forward pass", "forward passes", "and no backward pass"),
    "nograd": ("forward pass", "forward passes", "without gradient, or in evaluation mode"),
    "jit_library": ("call", "calls", "of jitted functions of libraries, which hold no gradient"),
    "jit": ("call", "calls", "of jitted functions, of which none returned a state or held a gradient"),
    "jit_gradient": (
        "call",
        "calls",
        "of jitted functions that compute gradients and return nothing they are given: JAX shows no steps in a call",
    ),
}
_MOST_DIGITS = 18
"""Of such a count, as a file may hold anything."""
_FEWEST_STEPS = 8
_WANTED = 0.1
"""Half the interval of a step that is known well, as a share of it."""
_FEW_TIMES = 3
"""As many steps as there are, above which a note shows how many more are needed."""
_SAMPLED = "on record as sums, since steps are short: {summed:,} of {steps}; the parts are of others"
_OF_RAY = "ray/_private/workers/"
"""In the path of the program that Ray starts its workers by."""
_EXCESS = "count as a whole: their parts exceed them"


def attached_run(header: AttachedHeader, files: AttachedFiles) -> AttachedRun:
    """Return what is known of an attached run.

    Args:
        header: what the program that started it knows.
        files: what its processes wrote.
    """
    kept = [kept_steps(attempt) for attempt in attempts_of(files.processes)]
    trainings = trainings_of([each.attempt for each in kept])
    main = max(kept, key=_trained_s, default=None)
    by_length = sorted(kept, key=lambda each: each is not main)
    began, ended = header.begin_ns, header.end_ns
    command = CommandTime(header.boot, began, ended, header.wall_minus_monotonic_ns)
    job = [] if header.by_environment else job_parts(kept, trainings, command)
    parts = step_parts(main) if main else []
    waited = whom_ranks_wait_for(main, parts) if main else None
    processes = list(main.attempt.processes.values()) if main else []
    micro_steps = (
        {step.micro_steps for number in main.numbers for step in main.attempt.steps[number]} if main else set()
    )
    trained = throughput(main) if main and main.numbers and not header.imported else None
    flops, flops_by, why_no_flops = step_flops(files.processes, main, trained)
    memory = memory_of_ranks(main) if main else []
    gpus = gpu_uses(files.gpus, main) if main and not header.imported else []
    seen = AttachedFindings(kept, trainings, main, parts, waited, job, memory, gpus) if main else None
    first = list(first_findings(header, files, trainings, by_length))
    imported = [ImportedFigures(**each.model_dump(exclude={"notes"})) for each in header.imported]
    return AttachedRun(
        imported=imported,
        command=header.command,
        exit_code=header.exit_code,
        started_at=header.started_at,
        wall_s=None if ended is None else (ended - began) * 1e-9,
        back_end=next((each.place.by for each in processes if each.place), None),
        world=main.attempt.world if main and not _lacks_workers(header) else 0,
        attempts=len(kept),
        trainings=described_trainings(trainings, by_length),
        ranks=[
            AttachedRank(
                rank=rank,
                host=each.process.host or None,
                steps=len(each.steps),
                ended=None if imported else each.end is not None,
            )
            for rank, each in (main.attempt.processes.items() if main else ())
        ],
        hosts=_hosts(main),
        steps=len(main.numbers) if main else 0,
        left_out=main.left_out if main else 0,
        left_out_for={why: count for why, count in main.left_out_for.items() if count} if main else {},
        micro_steps=micro_steps.pop() if len(micro_steps) == 1 else None,
        level=LEVEL,
        step_s=step_length(main) if main else NOT_MEASURED,
        device=(
            device_time(main.attempt, main.of_device, float(main.host_length_s.mean()))
            if main and main.device
            else None
        ),
        median_step_s=median_step_length(main) if main else NOT_MEASURED,
        spread=step_spread(main) if main and not _are_means(main) else None,
        windows=step_windows(main, command) if main and not _are_means(main) else [],
        histogram=step_histogram(main) if main and not _are_means(main) else None,
        throughput=trained,
        memory=memory,
        gpus=gpus,
        gpus_reason=None if gpus else why_no_gpus(files.gpus, header),
        flops=flops,
        flops_by=flops_by,
        arithmetic=(
            arithmetic(files, main, trained, flops, why_no_flops)
            if main and main.numbers and not header.imported
            else None
        ),
        parts=parts,
        waited_for=waited,
        collectives=collective_counts(main) if main and main.numbers else [],
        clock_uncertainty_s=_clock_uncertainty_s(main),
        job=job,
        findings=[*first, *(findings_of(seen) if seen else [])],
        not_attached=None if main else header.not_attached or _not_trained(files),
        notes=[*_counting_notes(files, main), *map(_with_amount(header), header.flags), *_notes(files, main)],
        noise={**header.noise, "delayed_share": delayed_share(files.processes)} if files.processes else header.noise,
        problems=sentences(files.set_aside),
    )


def _lacks_workers(header: AttachedHeader) -> bool:
    return any("workers" in each.unknown for each in header.imported)


def _are_means(kept: KeptSteps) -> bool:
    """Whether steps of an imported file are means of several, which show no quantile of single ones."""
    return any(MEAN in step.flags for number in kept.numbers for step in kept.attempt.steps[number])


def _hosts(main: KeptSteps | None) -> list[AttachedHost]:
    """Return the hosts of an attempt in the order of their ranks."""
    ranks_of: dict[HostOfRanks, list[int]] = {}
    if main is None:
        return []
    for rank, host in main.attempt.hosts.items():
        ranks_of.setdefault(host, []).append(rank)
    return [
        AttachedHost(
            name=host.name,
            ranks=ranks,
            devices=list(dict.fromkeys(name for rank in ranks for name in main.attempt.processes[rank].device_names)),
        )
        for host, ranks in ranks_of.items()
        if host.name
    ]


def _trained_s(kept: KeptSteps) -> float:
    return sum(step.duration_ns * 1e-9 for steps in kept.attempt.steps.values() for step in steps)


def _clock_uncertainty_s(main: KeptSteps | None) -> float | None:
    if main is None or main.exchange is None or len(set(main.attempt.boots.values())) == 1:
        return None
    return main.exchange.clock.uncertainty_s


def _with_amount(header: AttachedHeader) -> Callable[[str], str]:
    def said(flag: str) -> str:
        much, text = amount(flag, [header.noise]), stored_flag_text(flag)
        return f"{text} ({much})" if much else text

    return said


def _not_trained(files: AttachedFiles) -> str:
    lines = [words for line in files.seen if len(words := line.split()) > 1]
    libraries = sorted({words[1] for words in lines if words[1] != _WHY})
    calls = dict(word.partition("=")[::2] for words in lines if words[1] == _WHY for word in words[2:])
    sights = [
        f"{format_count(int(number), one, several)} {rest}"
        for name, (one, several, rest) in _SIGHTS.items()
        if (number := calls.get(name, "")[:_MOST_DIGITS]).isdecimal() and int(number)
    ]
    seen = ", ".join(libraries[:6]) or "without a library of training"
    what = ", ".join(sights) or "no module, backward pass or jitted function at all"
    return _NOT_TRAINED.format(seen=seen, what=what)


def _counting_notes(files: AttachedFiles, main: KeptSteps | None) -> list[str]:
    """Return what counts as a sample or as a step, where that is not what one would think."""
    texts = dict.fromkeys(chain.from_iterable(process.notes for process in files.processes))
    own = (
        [*pass_notes(main), *sample_notes(main), *batch_notes(main), *input_notes(main)]
        if main and main.numbers
        else []
    )
    return [*own, *texts]


def _notes(files: AttachedFiles, main: KeptSteps | None) -> list[str]:
    notes: list[str] = []
    lost = sum(each.end.lost for each in files.processes if each.end)
    if lost:
        notes.append(f"{format_count(lost, 'line')} could not be written: the disk was full, or the folder gone")
    undivided = sum(step.is_undivided for process in files.processes for step in process.steps)
    if undivided:
        excess = "counts as a whole: its parts exceed it" if undivided == 1 else _EXCESS
        notes.append(f"{format_count(undivided, 'step')} {excess}")
    summed = sum(each.last - each.first + 1 for process in files.processes for each in process.summed)
    alone = sum(len(process.steps) for process in files.processes)
    if main is not None and summed and alone:
        notes.append(_SAMPLED.format(summed=summed, steps=format_count(summed + alone, "step")))
    if main:
        notes = [*devices_of_ranks(main.attempt, main.numbers), *_too_few(main), *selection_notes(main), *notes]
    return [*_niceness(files), *notes]


def _niceness(files: AttachedFiles) -> Iterator[str]:
    """Yield at which niceness processes trained, if others come before them."""
    trained = [each.process for each in files.processes if each.steps and each.process.niceness > 0]
    if trained:
        numbers = " and ".join(sorted({str(process.niceness) for process in trained}))
        text = f"processes train at niceness {numbers}: other programs on their cores come first"
        of_ray = any(_OF_RAY in word for process in trained for word in process.program)
        yield f"{text}; RAY_worker_niceness=0 where Ray is started ends that" if of_ray else text


def _too_few(kept: KeptSteps) -> Iterator[str]:
    """Yield how many more steps are needed, where there are too few for an interval, or for a narrow one."""
    step_s, count = step_length(kept), len(kept.numbers)
    if step_s.value is None:
        return
    if step_s.low is None:
        shows = f"{format_count(count, 'step')} {'shows' if count == 1 else 'show'}"
        yield f"{shows} no interval: at least {_FEWEST_STEPS - count} more are needed"
        return
    more = more_values(Interval(step_s.value, step_s.low, step_s.high), count, _WANTED)
    if more > _FEW_TIMES * count:
        yield f"{count} steps are few: about {more} more would give the step within {100 * _WANTED:.0f} %"
