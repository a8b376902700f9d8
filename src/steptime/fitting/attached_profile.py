"""The profile of one attached run and a link: what a forecast of a user's own script rests on, and how it is kept."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from steptime.analysis.message_times import NetRow
from steptime.attached.exchange import CallKind, sharded_calls
from steptime.attached.form import AttachedRun, CollectiveCount, StepPart
from steptime.attached.processor_use import busy_threads, delayed_share
from steptime.errors import StoreError
from steptime.fitting.attached_link import AttachedLink, further_links, link_of_tables, run_link
from steptime.fitting.observation import PositiveSeconds, Seconds, Share
from steptime.fitting.profile import NetLink
from steptime.model.shared_cores import MachineCores
from steptime.phases import EXCHANGED, REST
from steptime.results.attached_files import AttachedFiles
from steptime.results.json_form import Interval
from steptime.results.results_files import folder_from
from steptime.results.stored_record import Bytes, Count
from steptime.units import format_bytes
from steptime.user_file import read_user_text
from steptime.user_output import PROFILE, write_user_file

SCHEMA = 1
KIND = "attached"
_MOST_BYTES = 64 << 20
_MOST_REST = 0.1
"""Of a step, that may be unexplained."""
_MOST_FOREIGN = 0.25
"""Of the processor seconds during the run, that others may have used where they delayed it."""
_LITTLE_DELAYED = 0.05
"""Of the time of a process, for which others may have kept it from running without a word."""
_MOST_DELAYED = 1.0 - 2.0**-0.5
"""From which on an interval that allows for an idle machine and one as much busier has ends twice as far apart."""
_NORMAL_95 = 1.96
_QUARTILES = 1.349
"""Their distance in a normal distribution, in standard deviations."""
_OF_BUFFERS = "_broadcast_coalesced"  # the kind of DDP's collective that sends buffers
_HOOKS = ("allreduce_hook", "BuiltinCommHookType.ALLREDUCE")  # of DDP, that average all bytes
_WAIT, _NAMED = "wait", 4
"""The kind of collective that only waits, and how many of the others a refusal names."""
_MEASURE = "measure the numbers of workers themselves: steptime sweep -- COMMAND"
_MIB = 1 << 20
_FIRST_BUCKET, _BUCKET = 1 * _MIB, 25 * _MIB  # of DDP, where its own are not on record
_SHARDED_ROOTS = ("FSDP", "FullyShardedDataParallel", "DeepSpeedEngine")
"""How class names of outermost modules begin, as `fully_shard`, its predecessor and DeepSpeed make them."""


class _Form(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Bucket(_Form):
    """Gradients that travel together."""

    bytes: Bytes
    ready: Share
    """The share of the backward pass after which the last of them is there."""


class Call(_Form):
    """A call of a step that starts a collective, or waits for the oldest one still under way."""

    kind: CallKind
    bytes: Bytes
    """Of the whole, that all workers gather or reduce."""
    after_s: Seconds
    """Since the call before returned."""


class AttachedProfile(_Form):
    """What an attached run and a link say of a step; seconds of the mean worker."""

    kind: str = KIND
    format_version: int = Field(SCHEMA, alias="schema")
    command: list[str]
    workers: Count
    cores: Annotated[float, Field(ge=0.0, le=1e6)]
    """Of the host, which its workers share where they have no devices; 0 if that is not known."""
    hardware_threads: Count | None = None
    """Of these cores; None if that is not known."""
    busy_threads: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """That a worker keeps busy; None if its record does not show it."""
    on_device: bool
    computing_s: PositiveSeconds
    """All but the exchange."""
    computing_error_s: Seconds
    """Its standard error within the run."""
    backward_s: Seconds
    """Of the pass behind which gradients are exchanged."""
    exposed_s: Seconds
    waiting_s: Seconds
    one_is_slow: bool
    """Whether the waiting is for one rank that is always slow."""
    spread_s: Seconds
    """Standard deviation of a worker's step from step to step."""
    buckets: list[Bucket]
    calls: list[Call] = []
    """Of a step whose parameters are sharded, in place of buckets."""
    buffers: Bytes = 0
    """That the first worker sends to all in each forward pass, as DDP does with those of batch norm."""
    foreign_cores: Annotated[float, Field(ge=0.0)] = 0.0
    """That other programs kept busy, where they delayed the run."""
    delayed: Share = 0.0
    """Of the time of its most delayed process, for which those kept it from running."""
    tokens: Annotated[float, Field(gt=0.0)] | None = None
    """That a worker trains on in a step; None if that was not seen, or several read the same."""
    at_peak_s: PositiveSeconds | None = None
    """That the arithmetic of a worker's step would take at the peak of its device or threads."""
    link: AttachedLink | None
    further_links: list[AttachedLink] = []
    """Between hosts, for more workers than were timed on the one host of ``link``; the preferred one first."""
    folder: Annotated[str, Field(max_length=4096)] | None = None
    """The results folder, from that of the profile; None if unknown."""
    refused: Annotated[str | None, Field(max_length=1000)] = None
    """Why nothing can be predicted; None if something can."""
    trainings: Annotated[str | None, Field(max_length=5000)] = None
    """Of a command that trained several times, which of them is predicted; None of a single one."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)

    def link_for(self, workers: int) -> AttachedLink | None:
        """Return the link of so many workers: that of one host for as many as were timed there, else one between."""
        link = self.link
        if link is None or link.between_hosts or workers <= max(link.workers, self.workers):
            return link
        return self.further_links[0] if self.further_links else link

    @property
    def shared_cores(self) -> MachineCores | None:
        """What further workers share with those of the run; None on devices, over several hosts, or if not known."""
        between = self.link is not None and self.link.between_hosts
        if self.on_device or between or not self.cores or self.busy_threads is None:
            return None
        return MachineCores(self.cores, self.busy_threads, self.hardware_threads)

    def _cores_sentence(self, most: int) -> str:
        """Return what predictions of up to ``most`` workers take of cores; empty where these suffice."""
        if self.shared_cores is not None:
            return self.shared_cores.sentence(most)
        if self.cores or self.on_device or most <= self.workers:
            return ""
        return "how many cores the host has is not known: no workers are taken to share them"

    @property
    def unseen_exchange(self) -> str:
        """What nothing measured of an exchange, and how to measure it; empty where the run had several workers."""
        if self.workers > 1:
            return ""
        return (
            "One process was measured, which exchanges nothing: how long workers exchange and wait for each other is "
            "calculated from the link and was never seen. Before a decision measure two: steptime attach -- torchrun "
            "--nproc-per-node 2 SCRIPT, then steptime fit."
        )

    def untested(self, most: int) -> str:
        """Return what nothing has tested of predictions of up to ``most`` workers."""
        exchange = self.unseen_exchange if most > 1 else ""
        return exchange or "One run was measured, so that nothing has tested this model."

    def notes(self, most: int) -> list[str]:
        """Return what to know of predictions of up to ``most`` workers."""
        cores = self._cores_sentence(most)
        return [each for each in (self.shared_with, f"Cores: {cores}." if cores else "") if each]

    @property
    def shared_with(self) -> str:
        """What other programs took of the run, and what that does to intervals; empty where they took little."""
        if not self.delayed:
            return ""
        taken = f"its processes from running for {100 * self.delayed:.0f} % of the time"
        busy = f"Others kept {self.foreign_cores:.2g} cores busy during the run, and {taken}"
        return f"{busy}: intervals allow for an idle machine, and for one as much busier."


def attached_profile(  # noqa: PLR0913 - a run, its link and its host
    run: AttachedRun,
    files: AttachedFiles,
    rows: Sequence[NetRow],
    cores: float,
    tables: Sequence[NetLink] = (),
    *,
    hardware_threads: int | None = None,
) -> AttachedProfile:
    """Return the profile of an attached run.

    Args:
        run: what was found in it.
        files: its records, of which the gradients are read.
        rows: what the message benchmark found in the same folder.
        cores: of the host; 0 if that is not known.
        tables: links behind output of nccl-tests, which replaces the message benchmark.
        hardware_threads: of these cores.
    """
    parts = {part.name: part for part in run.parts}
    known = [part for name, part in parts.items() if name not in EXCHANGED]
    computing_s = sum(part.time_s.value or 0.0 for part in known)
    errors = [_error_s(part.time_s) for part in known]
    micro_steps = max(1, run.micro_steps or 1)
    on_device = any(part.device_s is not None for part in run.parts)
    foreign, delayed = (0.0, 0.0) if on_device else _others(run, files)
    profile = AttachedProfile(
        command=list(run.command),
        workers=run.world,
        cores=cores,
        hardware_threads=hardware_threads,
        busy_threads=busy_threads(each for each in files.processes if each.steps) or None,
        on_device=on_device,
        computing_s=max(computing_s, 1e-12),
        computing_error_s=float(np.sqrt(np.sum(np.square(errors)))),
        backward_s=_value(parts.get("backward")) / micro_steps,
        exposed_s=_value(parts.get("comm_exposed")),
        waiting_s=_value(parts.get("sync_wait")),
        one_is_slow=run.waited_for is not None and bool(run.waited_for.ranks),
        spread_s=_spread_s(files),
        buckets=_buckets(files),
        calls=[Call(**call._asdict()) for call in sharded_calls(run.world, run.collectives, files.processes)],
        buffers=round(sum(each.bytes for each in run.collectives if each.kind == _OF_BUFFERS)),
        foreign_cores=foreign,
        delayed=delayed,
        tokens=_tokens(run),
        at_peak_s=_at_peak_s(run),
        link=link_of_tables(tables) if tables else run_link(run, rows),
        further_links=[] if tables else further_links(run, rows),
    )
    return profile.model_copy(update={"refused": _refusal(run, profile, files)})


def _tokens(run: AttachedRun) -> float | None:
    known = run.throughput
    if known is None or known.same_batches or not known.tokens.per_step:
        return None
    return known.tokens.per_step / max(1, len(run.ranks))


def _at_peak_s(run: AttachedRun) -> float | None:
    peak = run.arithmetic.peak_flop_per_s.value if run.arithmetic and run.arithmetic.reason is None else None
    return run.flops / peak if run.flops and peak else None


def _value(part: StepPart | None) -> float:
    return max(0.0, part.time_s.value or 0.0) if part is not None else 0.0


def _error_s(time: Interval[float | None]) -> float:
    if time.low is None or time.high is None:
        return 0.0
    return (time.high - time.low) / (2.0 * _NORMAL_95)


def _spread_s(files: AttachedFiles) -> float:
    """Return the standard deviation of a process's steps, by its quartiles: a few long ones do not count."""
    steps = next((each.steps for each in files.processes if each.steps), [])
    lengths = [step.active_s for step in steps if not step.holds_other_work]
    if len(lengths) < 2:  # noqa: PLR2004 - no spread
        return 0.0
    low, high = np.quantile(lengths, (0.25, 0.75))
    return float(high - low) / _QUARTILES


def _buckets(files: AttachedFiles) -> list[Bucket]:
    """Return the buckets of DDP with the share of the backward pass after which each is ready."""
    process = next((each for each in files.processes if each.gradients), None)
    if process is None:
        return []
    last = process.gradients[-1]
    end = last.ready[-1][1] if last.ready else 0
    sizes = list(process.buckets.bytes) if process.buckets and process.buckets.bytes else []
    found: list[Bucket] = []
    held = 0
    for size, at in last.ready:
        held += size
        limit = sizes[len(found)] if len(found) < len(sizes) else (_BUCKET if found else _FIRST_BUCKET)
        if held >= limit:
            found.append(Bucket(bytes=held, ready=min(1.0, at / end) if end else 1.0))
            held = 0
    if held:
        found.append(Bucket(bytes=held, ready=1.0))
    sent = process.buckets.sent_bytes if process.buckets else None
    share = 1.0 if sent is None or not last.bytes else sent / last.bytes
    return [each.model_copy(update={"bytes": round(each.bytes * share)}) for each in found]


def _unmodelled(run: AttachedRun, profile: AttachedProfile, files: AttachedFiles) -> str | None:
    """Return which messages of a run no model covers; None without such ones."""
    lines = [each.buckets for each in files.processes if each.buckets is not None and each.buckets.hook is not None]
    other = next((line.hook for line in lines if line.hook not in _HOOKS and line.sent_bytes is None), None)
    if other is not None:
        return f"its gradients go through the hook {other} of DDP, which no model covers yet"
    known = {"none", "backward"} if lines else {"none"}
    inside = [each for each in run.collectives if not (each.region in known or each.kind == _OF_BUFFERS)]
    if not profile.calls and inside:
        return f"{_named(inside)}; {_MEASURE}"
    return None


def _named(calls: Sequence[CollectiveCount]) -> str:
    """Return collectives inside of passes with their bytes, those of most bytes first."""
    sent = sorted((each for each in calls if each.kind != _WAIT), key=lambda each: -each.bytes)
    named = [
        f"{each.count:.3g} {each.kind} of {format_bytes(each.bytes / each.count)} in its {each.region}"
        for each in sent[:_NAMED]
        if each.count
    ]
    more = f" and {len(sent) - _NAMED} kinds more" if len(sent) > _NAMED else ""
    which = f", and a step of a rank has {', '.join(named)}{more}" if named else ""
    return f"no model covers collectives inside of passes (tensor parallel, DeepSpeed){which}"


def _delayed_share(files: AttachedFiles) -> float:
    """Return the share of its time for which others kept the most delayed process from running; 1 if it is unknown."""
    if not files.processes:
        return 0.0
    share = delayed_share(files.processes)
    return 1.0 if share is None else share


def _is_sharded(files: AttachedFiles) -> bool:
    return any(
        root.startswith(_SHARDED_ROOTS) for each in files.processes for line in each.gradients for root in line.roots
    )


def _refusal(run: AttachedRun, profile: AttachedProfile, files: AttachedFiles) -> str | None:
    """Return why a run predicts nothing; None if it predicts something."""
    hidden = next((part.reason for part in run.parts if part.name == "sync_wait" and part.reason), None)
    if not run.ranks or hidden:
        return f"its exchange is not known: {hidden}" if hidden else "no step of the script is on record"
    if run.micro_steps is None and run.world > 1:
        return "its steps have different numbers of micro-steps in turn, and so no one exchange"
    if (unmodelled := _unmodelled(run, profile, files)) is not None:
        return unmodelled
    if not profile.calls and _is_sharded(files):
        return "its parameters are sharded (FSDP), of which one process shows no exchange; attach to two processes"
    if not profile.buckets:
        return "the bytes of its gradients are not on record"
    return _unsteady(run, profile) or _without_link(run, profile)


def _others(run: AttachedRun, files: AttachedFiles) -> tuple[float, float]:
    """Return the cores that other programs kept busy and the share of time they took; nothing where that is little."""
    foreign, own = (run.noise.get(name) or 0.0 for name in ("foreign_cpu_cores", "own_cpu_cores"))
    delayed = _delayed_share(files)
    some = delayed > _LITTLE_DELAYED and foreign > _MOST_FOREIGN * (foreign + own)
    return (foreign, min(1.0, delayed)) if some else (0.0, 0.0)


def _unsteady(run: AttachedRun, profile: AttachedProfile) -> str | None:
    """Return why the times of a run are too far from those of the script alone, or not explained; None if neither."""
    if profile.delayed > _MOST_DELAYED:
        taken = f"and kept its processes from running for {100 * profile.delayed:.0f} % of the time"
        busy = f"others kept {profile.foreign_cores:.2g} cores busy during the run, {taken}"
        return f"{busy}: an interval that allows for that would say nothing; run it while others do less"
    rest = next((part.share or 0.0 for part in run.parts if part.name == REST), 0.0)
    if rest > _MOST_REST:
        return f"{100 * rest:.0f} % of its step is not explained, more than {100 * _MOST_REST:.0f} %"
    return None


def _without_link(run: AttachedRun, profile: AttachedProfile) -> str | None:
    if profile.link is None:
        name = (run.back_end or "gloo").rpartition("/")[2]
        return (
            f"no link of its back end was measured; run: steptime net {name} --workers 2,4 -o RESULTS, then fit again"
        )
    return None


def write_attached_profile(profile: AttachedProfile, path: Path, results: Path | None = None) -> None:
    """Write the profile of the folder ``results``; raises StoreError when it cannot be written."""
    if results is not None:
        profile = profile.model_copy(update={"folder": folder_from(path, results)})
    write_user_file(path, (profile.model_dump_json(by_alias=True) + "\n").encode(), PROFILE)


def read_attached_profile(path: Path) -> AttachedProfile | None:
    """Read the profile of an attached run; None if the file is that of a study, or none at all.

    Raises StoreError where it is one, and damaged.
    """
    if not path.is_file():
        return None
    text = read_user_text(path, _MOST_BYTES)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        return None
    try:
        profile = AttachedProfile.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        message = f"{path}, key {'.'.join(map(str, first['loc']))}: {first['msg']}; fit again: steptime fit RESULTS"
        raise StoreError(message) from error
    if profile.format_version != SCHEMA or not math.isfinite(profile.computing_s):
        message = f"{path} has schema {profile.format_version}; this steptime reads {SCHEMA}; fit the results again"
        raise StoreError(message)
    return profile
