"""Steps beside what was expected of them, and steps that could be, from records whose truth is planted."""

import pytest
from launch_phases import STAGES, launch_of
from simulated import a_trial
from summaries import summary
from summaries import trial as summary_of

from steptime.analysis.ablation.breakdown import break_down
from steptime.diagnosis.expected import expected_steps
from steptime.diagnosis.form import Scenario
from steptime.diagnosis.scenarios import scenarios_of
from steptime.errors import UsageError
from steptime.report.expectations import expected_section, judgement_in_words
from steptime.report.scenarios import what_if_section
from steptime.report.trial_names import Names
from steptime.results.json_form import Interval

COMPUTED = STAGES["forward"] + STAGES["backward"] + STAGES["local"]
STEP_S = COMPUTED + STAGES["exchange"] + STAGES["step"]
HEADER = "framework,workers,step_s,low,high\n"


def speedups(workers=2, **changes):
    """The speed-up of each scenario, of made-up launches without noise."""
    trial = a_trial(strategy="allreduce", workers=workers)
    launches = [launch_of(seed, workers, **{"noise": 0.0, **changes}) for seed in range(3)]
    return {each.change: each.speedup.value for each in scenarios_of(trial, launches)}


def expected_by(folder, row):
    """The one expectation that a table of figures gives."""
    table = folder / "vendor.csv"
    table.write_text(HEADER + row)
    study = summary([summary_of(rate=1000.0, batch=64)])  # 128 samples in 0.128 s
    return expected_steps(folder, study, table)[0]


def test_a_step_without_waiting_for_input_is_shorter_by_just_that():
    assert speedups()["without waiting for input"] == pytest.approx(STEP_S / (STEP_S - STAGES["step"]))


def test_a_step_without_the_slowest_worker_is_that_of_the_others():
    found = speedups(workers=4, slow={2: 1.5})

    assert found["without the slowest worker"] == pytest.approx((STEP_S + 0.5 * COMPUTED) / STEP_S)


def test_half_of_the_exposed_communication_is_left_where_no_pieces_are_known():
    assert speedups()["with an exchange twice as fast"] == pytest.approx(STEP_S / (STEP_S - STAGES["exchange"] / 2))


@pytest.mark.parametrize(("hosts", "what"), [(1, "an exchange"), (2, "a network")])
def test_workers_of_one_host_have_no_network(hosts, what):
    trial = a_trial(strategy="allreduce", workers=2, hosts=hosts)
    changes = {each.change for each in scenarios_of(trial, [launch_of(0, 2, noise=0.0)])}
    assert {change for change in changes if "twice as fast" in change} == {f"with {what} twice as fast"}


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_all_scenarios_of_a_trial_are_relative_to_the_step_of_its_breakdown(noise):
    trial = a_trial(strategy="allreduce", workers=4)
    launches = [launch_of(seed, 4, noise=noise) for seed in range(3)]
    step_s = break_down(trial, launches, []).step_s.value_s
    found = scenarios_of(trial, launches)
    assert [each.speedup.value * each.step_s for each in found] == pytest.approx([step_s] * 4, rel=1e-6)
    assert all(each.speedup.low <= each.speedup.value <= each.speedup.high for each in found)


def test_perfect_overlap_leaves_no_exposed_communication_where_there_is_computing_to_cover_it():
    assert speedups()["with perfect overlap"] == pytest.approx(STEP_S / (STEP_S - STAGES["exchange"]))


def test_a_single_worker_has_no_other_that_is_slow_and_no_network():
    assert list(speedups(workers=1)) == ["without waiting for input"]


@pytest.mark.parametrize(
    ("row", "judgement"),
    [
        ("pytorch,2,0.128,0.12,0.14\n", "as expected"),
        ("pytorch,2,0.08,0.07,0.09\n", "slower"),
        ("pytorch,2,0.3,0.25,0.35\n", "faster"),
    ],
)
def test_pasted_figures_are_what_a_step_is_expected_to_take(tmp_path, row, judgement):
    assert expected_by(tmp_path, row).judgement == judgement


def test_a_slower_step_is_said_with_its_ratio_and_interval(tmp_path):
    assert judgement_in_words(expected_by(tmp_path, "pytorch,2,0.08,0.07,0.09\n")).startswith("slower: takes 1.60x (")


def test_a_trial_without_figures_has_no_expectation_and_a_reason(tmp_path):
    found = expected_by(tmp_path, "mxnet,2,0.1,,\n")

    assert (found.judgement, found.reason) == (None, "no row is about this trial")


def test_all_mistakes_of_a_table_of_figures_are_told(tmp_path):
    with pytest.raises(UsageError) as refused:
        expected_by(tmp_path, "pytorch,2,fast,,\npytorch,4,,,\n")

    assert len(refused.value.mistakes) == 2


def test_a_page_names_trials_without_an_expectation_in_one_sentence(tmp_path):
    table = tmp_path / "vendor.csv"
    table.write_text(HEADER + "pytorch,2,0.128,0.12,0.14\n")
    study = summary([summary_of(name, rate=1000.0, batch=64, id=name) for name in ("pytorch", "mxnet", "chainer")])
    section = expected_section(study, expected_steps(tmp_path, study, table), Names(study.trials))
    judged, sentences = section.within("page")

    assert [row.name for row in judged.rows] == ["pytorch allreduce, lenet5, 2 workers"]
    (text,) = sentences.texts
    assert text.startswith(
        "No expectation of mxnet allreduce, lenet5, 2 workers; chainer allreduce, lenet5, 2 workers: "
    )


def test_a_page_has_a_row_for_each_trial_and_a_column_for_each_change():
    study = summary([summary_of(workers=count, id=f"w{count}") for count in (1, 2)])
    scenarios = [
        Scenario(trial="w1", change="without waiting for input", step_s=0.1, speedup=Interval(1.1, 1.0, 1.2)),
        Scenario(trial="w2", change="without waiting for input", step_s=0.2, speedup=Interval(1.2, 1.1, 1.3)),
        Scenario(trial="w2", change="with perfect overlap", step_s=0.2, speedup=Interval(1.2, 1.1, 1.3)),
    ]
    (table,) = what_if_section(study, scenarios, Names(study.trials)).within("page")

    titles = ["step", "without waiting for input", "with perfect overlap"]
    assert [column.title for column in table.columns] == titles
    assert [[cell.line for cell in row.cells] for row in table.rows] == [
        ["110 ms", "1.10x (1.00 to 1.20) 100 ms", "-"],
        ["240 ms", "1.20x (1.10 to 1.30) 200 ms", "1.20x (1.10 to 1.30) 200 ms"],
    ]
