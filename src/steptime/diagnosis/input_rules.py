"""Rules about the input: the loader that a step waits for, and copies to the device."""

from steptime.catalog.choices import LOADERS, SYNTHETIC
from steptime.datasets.builtins import BUILTINS
from steptime.diagnosis.diagnosed_trial import DiagnosedTrial
from steptime.diagnosis.gain import gain_without
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.results.json_form import Interval

_NOTABLE_WAIT = 0.05


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
        return Claim(claim, f"load by {named}", _loading_by(at, best.loader, best.processes), predicted)
    if at.trial.loader != _CACHED and at.has_loader(_CACHED) and _is_image_folder(at):
        changes = _loading_by(at, _CACHED, at.trial.loader_processes)
        return Claim(claim, "decode images once", changes, gain_without(share))
    spare = at.cores is not None and at.cores >= at.busy + at.trial.workers
    if at.trial.loader_processes == 0 and spare:
        return Claim(claim, "load in a helper process", _loading_by(at, at.trial.loader, 1), gain_without(share))
    return Claim(claim, "give the loader more cores, or store what it reads in a form that is quicker to read")


def _is_image_folder(at: DiagnosedTrial) -> bool:
    builtin = BUILTINS.get(at.trial.dataset or "")
    return builtin is None or builtin.form == LOADERS["native"].form


def _loading_by(at: DiagnosedTrial, loader: str, processes: int) -> list[str]:
    """Return the overrides for a loader, whose helpers get cores beside those of their worker's threads."""
    found = [f"loaders={{name: {loader}, processes: {processes}}}"]
    cores = at.trial.threads + processes
    pinned = at.trial.cores_per_worker or (at.trial.threads if at.trial.device == "cpu" else None)
    fits = at.cores is not None and at.cores >= at.busy + at.trial.workers * processes
    if processes and pinned is not None and pinned < cores and fits:
        found.append(f"cores_per_worker={cores}")
    return found


def _copied(at: DiagnosedTrial) -> Interval | None:
    return at.share("h2d") if at.trial.device == "cuda" else None


def _copies(at: DiagnosedTrial, share: Interval) -> Claim | None:
    claim = f"copies of batches to the device take {100 * share.value:.0f} % of the step"
    if at.trial.loader not in (SYNTHETIC.name, _DALI) and at.has_loader(_DALI):
        changes = _loading_by(at, _DALI, at.trial.loader_processes)
        return Claim(claim, "decode on the device", changes, gain_without(share))
    return Claim(claim, "copy the next batch while this one is computed, from pinned memory", [], gain_without(share))


LOADER = DiagnosisRule(
    "input_bound",
    "waiting for input",
    _waited,
    _NOTABLE_WAIT,
    _input_bound,
    "synthetic batches give no more samples per second",
)


COPIES = DiagnosisRule(
    "device_copies",
    "copies to the device",
    _copied,
    _NOTABLE_WAIT,
    _copies,
    "batches that are on the device already give no more samples per second",
)
