"""Rules about the exchange of gradients: exposed, in too many messages, limited by the link or by servers."""

from steptime.diagnosis.diagnosed_trial import DiagnosedTrial
from steptime.diagnosis.form import EvidenceNumber
from steptime.diagnosis.gain import gain_without
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.results.json_form import Interval

_NOTABLE = 0.1
_SMALL_PIECE_BYTES = 2**20
"""Messages below it take their start rather than their bytes on most links."""
_FEWEST_PIECES = 4
_BUSY_LINK = 0.5
_EXCHANGE_OPTIONS = (
    "gradients",
    "static_graph",
    "pack_mb",
    "pack_kb",
    "average",
    "overlap_comm",
    "reshard_after_forward",
)
"""Of frameworks, that change how gradients travel and nothing else."""
_MESSAGE_SIZES = ("bucket_mb", "fusion_mb", "pack_mb", "bucket_values")
"""Options that say how many gradients travel in one message."""
_HALVED = {"bf16", "fp16"}


def _all_reduced(at: DiagnosedTrial) -> Interval | None:
    if at.trial.workers == 1 or at.trial.servers or not at.strategy.synchronous:
        return None
    return at.share("comm_exposed")


def _served(at: DiagnosedTrial) -> Interval | None:
    return at.share("comm_exposed") if at.trial.servers and at.trial.workers > 1 else None


def _exposed(at: DiagnosedTrial, share: Interval) -> Claim | None:
    options = at.better_options(_EXCHANGE_OPTIONS)
    claim = f"{100 * share.value:.0f} % of the step is communication that no computation covers"
    if not options:
        change = "exchange less often or fewer bytes: a larger batch, another strategy, or a faster link"
        return Claim(claim, change)
    named = ", ".join(f"{name}={value}" for name, value in options.items())
    return Claim(claim, f"use {named}", at.overrides(options), gain_without(share))


def _many_messages(at: DiagnosedTrial, share: Interval) -> Claim | None:
    """Too many small messages: of n, all but one of the starts could go."""
    name = next((each for each in _MESSAGE_SIZES if at.option(each) is not None), None)
    if name is None or at.manifest is None or at.exchanged is None or at.exchanged.pieces < _FEWEST_PIECES:
        return None
    usual, now = at.manifest.options[name].default, at.option(name)
    size = at.exchanged.bytes / at.exchanged.pieces
    if size >= _SMALL_PIECE_BYTES or not isinstance(now, (int, float)) or not isinstance(usual, (int, float)):
        return None
    if now >= usual:
        return None
    evidence = [
        EvidenceNumber(what="messages of a step", value=Interval(at.exchanged.pieces, None, None), unit="count"),
        EvidenceNumber(what="bytes of a message", value=Interval(size, None, None), unit="bytes"),
    ]
    return Claim(
        f"gradients travel in {at.exchanged.pieces:.0f} messages of {size / 1024:.0f} KiB, whose starts add up",
        f"let larger groups of gradients travel together: {name}={usual}",
        at.overrides({name: usual}),
        gain_without(share, (0.0, 1.0 - 1.0 / at.exchanged.pieces)),
        evidence,
    )


def _halving(at: DiagnosedTrial) -> str | None:
    """Return the compression that halves what a trial sends uncompressed; None if its framework has none."""
    option = at.manifest.options.get("compression") if at.manifest else None
    if option is None or at.option("compression") != "none":
        return None
    return next((choice for choice in option.choices if choice in _HALVED), None)


def _slow_link(at: DiagnosedTrial, share: Interval) -> Claim | None:
    """The bytes of a step take most of the measured bandwidth of the link for as long as it communicates."""
    overlap = at.breakdown.overlap if at.breakdown else None
    row = next((each for each in at.links if each.workers == at.trial.workers and each.fit), None)
    rate = row.fit.bandwidth_bytes_per_s.value if row and row.fit else None
    if row is None or not rate or overlap is None or at.exchanged is None or overlap.communication_s.value_s <= 0.0:
        return None
    busy = at.exchanged.bytes * row.volume / rate / overlap.communication_s.value_s
    if busy < _BUSY_LINK:
        return None
    half = _halving(at)
    evidence = EvidenceNumber(
        what="time of its bytes at the link's bandwidth", value=Interval(busy, None, None), unit="share"
    )
    return Claim(
        f"the link's bandwidth limits: bytes alone take {100 * min(1.0, busy):.0f} % of the communication",
        "send half the bytes, which rounds gradients" if half else "send fewer bytes, or use a faster link",
        at.overrides({"compression": half}) if half else [],
        gain_without(share, (0.0, 0.5)) if half else gain_without(share),
        [evidence],
    )


def _saturated(at: DiagnosedTrial, share: Interval) -> Claim | None:
    servers = f"{at.trial.servers} server{'s'[: at.trial.servers > 1]}"
    claim = f"{at.trial.workers} workers wait {100 * share.value:.0f} % of each step for {servers}"
    if at.strategy.synchronous and at.manifest is not None and "allreduce" in at.manifest.strategies:
        return Claim(claim, "let workers average among themselves", ["strategies=allreduce"], gain_without(share))
    crowded = at.trial.cluster is None and at.cores is not None and at.busy + 1 > at.cores
    if at.trial.servers >= at.trial.workers or (crowded and at.trial.device == "cpu"):
        return Claim(claim, "put the servers on faster links or cores")
    more = at.trial.servers + 1
    return Claim(claim, f"share the weights among {more} servers", [f"servers={more}"], gain_without(share, (0.0, 0.5)))


EXPOSED = DiagnosisRule(
    "exposed_communication",
    "exposed communication",
    _all_reduced,
    _NOTABLE,
    _exposed,
    "exposed communication is as long in a breakdown with the change",
)
LATENCY = DiagnosisRule(
    "latency_bound",
    "exposed communication",
    _all_reduced,
    _NOTABLE / 2,
    _many_messages,
    "exposed communication is as long with a tenth of the messages",
)
BANDWIDTH = DiagnosisRule(
    "bandwidth_bound",
    "exposed communication",
    _all_reduced,
    _NOTABLE,
    _slow_link,
    "exposed communication is as long with half the bytes",
)
SERVERS = DiagnosisRule(
    "server_saturation",
    "exposed communication with servers",
    _served,
    _NOTABLE,
    _saturated,
    "exposed communication is as long with one worker for each server",
)
