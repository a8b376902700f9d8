"""One check of the gate: a framework's run held against the reference's, as often as its strategy needs."""

from dataclasses import dataclass
from pathlib import Path

from steptime.measurements.records import GateResult
from steptime.runner.bench import Bench
from steptime.runner.gate.findings import Findings
from steptime.runner.gate.truth import Truth
from steptime.runner.jobs import check_job
from steptime.study.trial import Trial
from steptime.workloads.ir import Workload


@dataclass(frozen=True)
class Checker:
    """Runs checks in a scratch folder."""

    bench: Bench
    scratch: Path
    steps: int
    """At most; fewer where rounding alone would decide after so many."""
    repeats: int
    """Of synchronous strategies with several workers, whose faults may be intermittent."""

    def check(self, trial: Trial, workload: Workload, truth: Truth | str, version: str) -> GateResult:
        """Run ``trial`` and hold it against ``truth``, or report why there is none."""
        exact = self.bench.manifests[trial.framework].strategies[trial.strategy].synchronous
        repeats = self.repeats if exact and trial.workers > 1 else 1
        found = Findings(trial, workload, exact=exact)
        if isinstance(truth, str):
            found.reasons.append(truth)
            return found.result(None, 0, version)
        job = check_job(trial.with_learning_rate(truth.learning_rate), workload, steps=truth.steps, save_weights=exact)
        for repeat in range(repeats):
            folder = self.scratch / f"{trial.id}-{repeat}"
            # Checks run side by side, which pins would put on the same cores.
            ran = self.bench.run(trial, job, folder, "check", pinned=False)
            if ran.crashed:
                found.note_crash()
                ran = self.bench.run(trial, job, folder, "check", pinned=False)
            found.add(ran, folder, truth)
            if found.reasons:
                break
        return found.result(truth, repeats, version)
