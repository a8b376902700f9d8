"""Rules about the input: the loader that a step waits for, and copies to the device."""

from steptime.catalog.loaders import LOADERS, SYNTHETIC
from steptime.datasets.builtins import BUILTINS
from steptime.diagnosis.diagnosed_trial import DiagnosedTrial
from steptime.diagnosis.gain import gain_without
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.measurements.json_form import Interval

_NOTABLE = 0.05
_CACHED, _DALI = "cached", "dali"


def _waited(at: DiagnosedTrial) -> Interval | None:
    return None if at.trial.loader == SYNTHETIC.name else at.share("input_wait")


def _input_bound(at: DiagnosedTrial, share: Interval) -> Claim | None:
    """The cheapest change of the loader verdict where there is one; else pixels that are decoded once, or a helper."""
    claim = f"each step waits {100 * share.value:.0f} % of its time for its batch"
    verdict = at.loading
    if verdict is not None and verdict.rows and verdict.rows[0].trial == at.trial.id and verdict.changes:
        best = verdict.changes[verdict.cheapest or 0]
        gain = best.predicted_gain
        named = f"{best.loader} with {best.processes} helpers" if best.processes else best.loader
        predicted: Interval[float | None] = Interval(gain.value, gain.low, gain.high)
        return Claim(claim, f"load by {named}", [_override(best.loader, best.processes)], predicted)
    if at.trial.loader != _CACHED and at.has_loader(_CACHED) and _is_image_folder(at):
        return Claim(claim, "decode images once", [_override(_CACHED, at.trial.loader_processes)], gain_without(share))
    spare = at.cores is not None and at.cores > at.busy
    if at.trial.loader_processes == 0 and spare:
        return Claim(claim, "load in a helper process", [_override(at.trial.loader, 1)], gain_without(share))
    return Claim(claim, "give the loader more cores, or store what it reads in a form that is quicker to read")


def _is_image_folder(at: DiagnosedTrial) -> bool:
    builtin = BUILTINS.get(at.trial.dataset or "")
    return builtin is None or builtin.form == LOADERS["native"].form


def _override(loader: str, processes: int) -> str:
    return f"loaders={{name: {loader}, processes: {processes}}}"


def _copied(at: DiagnosedTrial) -> Interval | None:
    return at.share("h2d") if at.trial.device == "cuda" else None


def _copies(at: DiagnosedTrial, share: Interval) -> Claim | None:
    claim = f"copies of batches to the device take {100 * share.value:.0f} % of the step"
    if at.trial.loader not in (SYNTHETIC.name, _DALI) and at.has_loader(_DALI):
        return Claim(claim, "decode on the device", [_override(_DALI, at.trial.loader_processes)], gain_without(share))
    return Claim(claim, "copy the next batch while this one is computed, from pinned memory", [], gain_without(share))


LOADER = DiagnosisRule(
    "input_bound",
    "waiting for input",
    _waited,
    _NOTABLE,
    _input_bound,
    "as many samples per second with synthetic batches",
)
COPIES = DiagnosisRule(
    "device_copies",
    "copies to the device",
    _copied,
    _NOTABLE,
    _copies,
    "as many samples per second with batches that are on the device already",
)
