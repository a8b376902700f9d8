"""The line that perfect scaling would follow: a baseline's throughput, times how many more workers there are."""

from collections.abc import Sequence

from steptime.measurements.summary_form import TrialSummary


def ideal_throughput(trials: Sequence[TrialSummary]) -> list[tuple[int, float]]:
    """Return the points ``(workers, samples per second)`` of the ideal line of one scaling curve.

    The baseline is what the trials' efficiencies are relative to, whether or not it is among them: efficiency is
    throughput per worker over the baseline's, so throughput over efficiency is what perfect scaling would have
    given. Where no trial is compared with fewer workers (strong scaling: their batches differ), the trial with the
    fewest workers is the baseline. Fewer than two numbers of workers have no line.
    """
    measured = {trial.workers: rate for trial in trials if (rate := trial.throughput_samples_per_s.value) is not None}
    per_worker = _baseline_per_worker(trials)
    counts = set(measured) | {workers for workers, _ in per_worker}
    if len(counts) < 2:  # noqa: PLR2004 - as the docstring says
        return []
    first = min(measured)
    rate = per_worker[0][1] if per_worker else measured[first] / first
    return [(workers, rate * workers) for workers in sorted(counts)]


def _baseline_per_worker(trials: Sequence[TrialSummary]) -> list[tuple[int, float]]:
    """The baseline's workers and throughput per worker, as each trial that is compared with it tells."""
    found = []
    for trial in trials:
        rate, efficiency = trial.throughput_samples_per_s.value, trial.efficiency
        if rate and efficiency.value and efficiency.baseline_workers not in (None, trial.workers):
            found.append((efficiency.baseline_workers or 0, rate / trial.workers / efficiency.value))
    return found
