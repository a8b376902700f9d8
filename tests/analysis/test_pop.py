"""POP efficiencies of steps whose loss is known, because it was planted."""

import json
import os
import shutil
import subprocess
from dataclasses import replace

import pytest
from launch_phases import STAGES, launch_of
from simulated import a_launch, a_store, a_trial
from typer.testing import CliRunner

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.pop import ASYNCHRONOUS
from steptime.analysis.summary import summarise
from steptime.cli.app import app

COMPUTED = STAGES["forward"] + STAGES["backward"] + STAGES["local"]
PLANTED = {
    "balanced": {},
    "slow worker": {"slow": {1: 1.5}},
    "pauses": {"pauses": (0.3, COMPUTED), "blocks": 40},
    "slow network": {"stages": {**STAGES, "exchange": 0.1}},
    "slow loader": {"stages": {**STAGES, "step": 0.05}},
}


def trial(strategy="allreduce", workers=2, **changes):
    return a_trial(strategy=strategy, workers=workers, **changes)


def broken_down(of=None, launches=3, **changes):
    """Return the breakdown of made-up launches without noise."""
    of = of or trial()
    fields = {"noise": 0.0, **changes}
    return break_down(of, [launch_of(seed, of.workers, **fields) for seed in range(launches)], [])


@pytest.mark.parametrize("planted", PLANTED)
def test_the_factors_multiply_to_the_parallel_efficiency(planted):
    pop = broken_down(**PLANTED[planted], noise=0.05).pop

    assert pop.communication.value == pytest.approx(pop.serialisation.value * pop.transfer.value, rel=1e-12)
    assert pop.parallel.value == pytest.approx(pop.load_balance.value * pop.communication.value, rel=1e-12)


@pytest.mark.parametrize("planted", PLANTED)
def test_the_factors_are_what_the_phases_say(planted):
    found = broken_down(**PLANTED[planted])
    phases, step = found.phases, found.step_s.value_s
    exposed, waited = phases["comm_exposed"].value_s, phases["sync_wait"].value_s

    assert found.pop.transfer.value == pytest.approx(1.0 - exposed / step)
    assert found.pop.parallel.value == pytest.approx(1.0 - (exposed + waited) / step)
    assert found.pop.load_balance.value == pytest.approx(1.0 / (1.0 + found.imbalance.persistent))
    assert found.pop.without_input_wait.value == pytest.approx(1.0 - phases["input_wait"].value_s / step)


@pytest.mark.parametrize(
    ("planted", "factor"),
    [("slow worker", "load_balance"), ("pauses", "serialisation"), ("slow network", "transfer")],
)
def test_a_planted_loss_lowers_its_own_factor_most(planted, factor):
    pop = broken_down(**PLANTED[planted]).pop
    factors = {name: getattr(pop, name).value for name in ("load_balance", "serialisation", "transfer")}

    assert min(factors, key=factors.get) == factor
    assert factors[factor] < 0.9


def test_a_slow_loader_lowers_only_the_share_without_input():
    slow, usual = broken_down(**PLANTED["slow loader"]).pop, broken_down().pop

    assert slow.without_input_wait.value < 0.6
    assert slow.parallel.value > usual.parallel.value


def test_an_interval_holds_its_value_and_widens_with_noise():
    quiet, noisy = (broken_down(noise=noise).pop.transfer for noise in (0.01, 0.1))

    assert quiet.low < quiet.value < quiet.high
    assert noisy.high - noisy.low > quiet.high - quiet.low


def test_one_worker_loses_nothing():
    pop = broken_down(trial("single", 1), stages={key: STAGES[key] for key in STAGES if key != "exchange"}).pop

    assert (pop.parallel.value, pop.load_balance.value, pop.transfer.value) == (1.0, 1.0, 1.0)


def test_workers_that_do_not_wait_have_no_efficiencies():
    found = broken_down(trial("ps_async", servers=1))

    assert found.pop is None
    assert found.pop_refused == ASYNCHRONOUS


def test_a_breakdown_without_computing_alone_has_no_efficiencies():
    found = broken_down(drop=("local", "backward", "forward"))

    assert found.pop is None
    assert "cannot tell" in found.pop_refused


def stored(folder, trials):
    """Return a results folder of trials that were timed and broken down, each with its stages."""
    store = a_store(folder, equivalence={"enabled": False})
    for of, stages in trials:
        store.add_trial(of)
        for number in range(2):
            store.append(a_launch(of, number))
            launch = launch_of(number, of.workers, stages, noise=0.0)
            store.append(replace(launch, trial=of.id, started_at=f"2026-01-02T00:00:{number:02d}.000+00:00"))
    return store


ALONE = {key: STAGES[key] for key in STAGES if key != "exchange"}
SLOWER = {name: 1.25 * seconds for name, seconds in STAGES.items()}


@pytest.mark.parametrize(("batch", "scaling", "computation"), [(8, "weak", 0.8), (4, "strong", 0.4)])
def test_computation_scales_by_useful_time_for_a_sample(tmp_path, batch, scaling, computation):
    several = trial(batch_per_worker=batch)
    found = summarise(stored(tmp_path / "r", [(trial("single", 1), ALONE), (several, SLOWER)])).trials

    pop = next(each.pop for each in found if each.id == several.id)
    assert (pop.scaling, pop.reference_workers) == (scaling, 1)
    assert pop.computation.value == pytest.approx(computation, rel=1e-3)
    assert pop.global_efficiency.value == pytest.approx(pop.parallel.value * pop.computation.value, rel=1e-9)


def test_a_trial_without_one_of_fewer_workers_has_no_computation_scaling(tmp_path):
    (found,) = summarise(stored(tmp_path / "r", [(trial(), STAGES)])).trials

    assert found.pop.computation is None
    assert found.pop.reference is None


def exported(folder):
    """Return where the export for TALP-Pages of two trials is."""
    store = stored(folder / "r", [(trial("single", 1), ALONE), (trial(), SLOWER)])
    arguments = ["export", str(store.path), "--to", "talp", "-o", str(folder)]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    return folder / "talp"


def test_a_scaling_curve_is_a_folder_with_its_reference(tmp_path):
    files = sorted(exported(tmp_path).rglob("*.json"))

    assert {file.parent.name for file in files} == {"reference-allreduce-mlp"}
    runs = [json.loads(file.read_text()) for file in files]
    assert sorted(run["resources"]["numMpiRanks"] for run in runs) == [1, 2]
    two = next(run["Application"]["Global"] for run in runs if run["resources"]["numMpiRanks"] == 2)
    assert two["parallelEfficiency"] == pytest.approx(two["mpiCommunicationEfficiency"] * two["mpiLoadBalance"])
    assert two["usefulTime"] + two["mpiTime"] == pytest.approx(2 * two["elapsedTime"])


def test_results_without_a_breakdown_cannot_be_exported_for_talp(tmp_path):
    store = a_store(tmp_path / "r")
    store.add_trial(trial())
    store.append(a_launch(trial()))

    result = CliRunner().invoke(app, ["export", str(store.path), "--to", "talp"])

    assert "breakdown=true" in str(result.exception)


def test_talp_pages_reads_the_export(tmp_path):
    """With the program ``talp`` that STEPTIME_TALP or PATH names; it is not a dependency, since it is under the GPL."""
    program = os.environ.get("STEPTIME_TALP") or shutil.which("talp")
    if program is None:
        pytest.skip(
            "no talp: pip install talp-pages in an environment of its own, and set STEPTIME_TALP to its bin/talp"
        )
    command = [program, "ci-report", "-i", str(exported(tmp_path)), "-o", str(tmp_path / "pages"), "--no-badge"]

    subprocess.run(command, check=True, capture_output=True, timeout=300)

    page = (tmp_path / "pages" / "index.html").read_text()
    assert "reference-allreduce-mlp" in page
