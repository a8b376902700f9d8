"""What synthetic runs of a script at several numbers of workers are found to be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from claims import further_digits, large_percentages, too_wide
from stored_processes import COMMAND, MS, ddp_steps, process_lines, write

from steptime.cli.console import PlainConsole
from steptime.document.section import Figures, Sentences
from steptime.document.table_formats import csv_of
from steptime.execution.progress import Silent
from steptime.report.export_formats import SectionFormat, formats_of
from steptime.report.sweep import sweep_section
from steptime.report.terminal import SectionText
from steptime.results.json_form import IntervalOverLaunches
from steptime.results.store import Store
from steptime.scaling.sweep_answer import SweepAnswer, SweepOptions, needs_runs, sweep_curve
from steptime.scaling.swept_runs import SweptRuns, read_runs
from steptime.sweep.plan import STORED, read_plan
from steptime.sweep.rounds import run_rounds
from steptime.sweep.runs import sweep_store

EXACT = 36.0
"""Milliseconds of a step without an exchange."""


def stored(folder, world, transfer_ms, steps=40, noise=None):
    """A run whose exchange takes so long."""
    processes = [
        process_lines(rank, world, ddp_steps(rank, lambda _: [0.0] * world, steps=steps, transfer=transfer_ms))
        for rank in range(world)
    ]
    store = Store.create(folder, study_text="", study_json={"name": "run", "question": ""})
    header = {"command": ["train.py"], "started_at": "2026-01-01T00:00:00+00:00", "boot": "boot-0", "exit_code": 0}
    header |= {"noise": noise} if noise else {}
    store.put("attached", {**header, "begin_ns": COMMAND, "end_ns": COMMAND + 9000 * MS, "wall_minus_monotonic_ns": 0})
    write(folder, *processes)
    return store


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Three runs each of 1 and 2 workers; the exchange of two takes about 9 ms of a step of 45."""
    found = []
    for workers, transfer in ((1, 0.0), (2, 9.0)):
        folder = tmp_path_factory.mktemp(f"workers-{workers}")
        stores = [(number, stored(folder / f"{number}", workers, transfer + 0.05 * number)) for number in (1, 2, 3)]
        runs, problem = read_runs(workers, stores)
        assert problem is None
        found.append(runs)
    return found


@pytest.fixture(scope="module")
def curve(swept):
    return sweep_curve("", swept, SweepOptions(batch=16, samples=3200, price=2.0))


def test_the_speed_up_of_workers_that_keep_their_batch_is_the_ratio_of_their_throughputs(curve):
    speedup = curve.points[1].speedup
    assert speedup.value == pytest.approx(2 * EXACT / (EXACT + 9.0), rel=0.01)
    assert speedup.low < speedup.value < speedup.high
    assert curve.points[1].efficiency.value == pytest.approx(speedup.value / 2)


def test_the_largest_loss_is_the_part_that_more_workers_made_longer(curve):
    assert curve.loss.part == "comm_exposed"
    assert curve.loss.share == pytest.approx(9.0 / 45.0, abs=0.01)


def test_the_answer_has_speed_up_efficiency_loss_and_knee(curve):
    assert curve.sentence.startswith("1.6x (")
    assert "on 2 workers, 80 % efficient; the largest loss is exposed comm. (20 % of a step); another" in curve.sentence


def test_forecasts_lie_beyond_the_measured_workers_and_hold_no_more_than_ideal(curve):
    assert [point.workers for point in curve.forecast] == [4, 8]
    assert all(point.step_s.low < point.step_s.value < point.step_s.high for point in curve.forecast)


@pytest.mark.parametrize(("kind", "counts"), [("weak", [16, 32]), ("strong", [8, 16])])
def test_what_two_counts_leave_open_by_a_large_factor_is_named_and_not_forecast(swept, kind, counts):
    curve = sweep_curve("", swept, SweepOptions(kind=kind, batch=16))
    assert all(point.step_s.high <= 30.0 * point.step_s.low for point in curve.forecast)
    assert not {point.workers for point in curve.forecast} & set(counts)
    assert curve.no_forecast.endswith(f"what a step of {' and '.join(map(str, counts))} workers takes")


def test_two_counts_between_the_measured_and_the_most_forecast_are_named_to_be_measured_next(curve):
    following = curve.next
    assert (following.target, set(following.workers) < {4, 8, 16}) == (32, True)
    assert 1.0 < following.expected < following.now
    parts = sweep_section(SweepAnswer(command=["train.py"], curves=[curve], missing=[])).parts
    lines = [line for part in parts if isinstance(part, Sentences) for line in part.texts]
    assert any(line.startswith("Measure next ") for line in lines)


def test_device_hours_and_money_of_an_epoch_follow_from_what_is_stated(curve):
    point = curve.points[1]
    assert point.samples_per_s == pytest.approx(2 * 16 / 45e-3, rel=0.01)
    assert point.device_h_per_epoch == pytest.approx(3200 / point.samples_per_s * 2 / 3600)
    assert point.money_per_epoch == pytest.approx(2 * point.device_h_per_epoch)


def test_what_is_not_stated_is_not_known(swept):
    point = sweep_curve("", swept[:1], SweepOptions()).points[0]
    assert (point.samples_per_s, point.device_h_per_epoch, point.money_per_epoch) == (None, None, None)


def test_the_energy_of_an_epoch_is_that_of_the_mean_power_of_commands(tmp_path):
    noise = [{"package_energy_j": joules, "wall_s": 10.0} for joules in (1500.0, 1600.0, 1700.0)]
    stores = [(turn, stored(tmp_path / f"{turn}", 1, 0.0, noise=each)) for turn, each in enumerate(noise, 1)]
    runs, _ = read_runs(1, stores)
    curve = sweep_curve("", [runs], SweepOptions(batch=16, samples=3200))
    point = curve.points[0]
    assert point.joules_per_epoch == pytest.approx(160.0 * 3200 / point.samples_per_s)
    assert curve.no_joules is None
    (table,) = (part for part in sweep_section(SweepAnswer(command=["a"], curves=[curve], missing=[])).parts[:1])
    assert "joules\nper epoch" in [column.title for column in table.columns]


def test_the_energy_of_an_epoch_is_unknown_where_a_run_has_no_counter(tmp_path):
    noise = [{"package_energy_j": 1500.0, "wall_s": 10.0}, {"package_energy_j": None, "wall_s": 10.0}]
    stores = [(turn, stored(tmp_path / f"{turn}", 1, 0.0, noise=each)) for turn, each in enumerate(noise, 1)]
    curve = sweep_curve("", [read_runs(1, stores)[0]], SweepOptions(batch=16, samples=3200))
    assert curve.points[0].joules_per_epoch is None
    parts = sweep_section(SweepAnswer(command=["a"], curves=[curve], missing=[])).parts
    lines = [line for part in parts if isinstance(part, Sentences) for line in part.texts]
    assert (
        "No joules per epoch: RAPL of the processors, as an energy meter, is missing or may be read by root alone."
        in lines
    )


def once(swept):
    """Return the runs with one of each number of workers, which are not forecast."""
    return [replace(runs, launches=runs.launches[:1]) for runs in swept]


def test_nobody_who_asks_for_no_epoch_hears_of_its_energy(swept):
    assert sweep_curve("", once(swept), SweepOptions()).no_joules is None


def test_workers_that_share_a_batch_speed_up_by_their_steps_and_are_forecast_by_them(swept):
    curve = sweep_curve("", swept, SweepOptions(kind="strong", batch=16))
    assert curve.points[1].speedup.value == pytest.approx(EXACT / 45.0, rel=0.01)
    assert curve.kind_from == "stated"
    assert [point.workers for point in curve.forecast] == [4]
    for point in curve.forecast:
        assert point.speedup.value == pytest.approx(curve.points[0].step_s.value / point.step_s.value)
        assert point.efficiency.value == pytest.approx(point.speedup.value / point.workers)


def test_a_batch_that_no_more_workers_can_share_is_not_forecast(swept):
    curve = sweep_curve("", swept, SweepOptions(kind="strong", batch=2))
    assert curve.no_forecast == "4 workers cannot share the batch of 2 samples"


def test_fewer_steps_with_more_workers_show_that_each_keeps_its_batch(swept):
    first, second = once(swept)
    assert sweep_curve("", [first], SweepOptions()).kind_from == "assumed"
    fewer = replace(second, steps=first.steps // 2)
    curve = sweep_curve("", [first, fewer], SweepOptions())
    assert (curve.kind, curve.kind_from) == ("weak", "steps")


@pytest.mark.parametrize(("samples", "kind"), [(32.0, "weak"), (16.0, "strong")])
def test_batches_of_loaders_tell_whether_workers_keep_or_share_them(swept, samples, kind):
    first, second = once(swept)
    curve = sweep_curve("", [replace(first, samples=16.0), replace(second, samples=samples)], SweepOptions())
    assert (curve.kind, curve.kind_from) == (kind, "batches")
    assert curve.points[1].samples_per_s == pytest.approx(samples / 45e-3, rel=0.01)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (4, 2, ("strong", "passes")),
        (5, 3, ("strong", "passes")),
        (2, 1, ("strong", "passes")),
        (4, 4, ("weak", "assumed")),
        (8, 7, ("weak", "assumed")),
        (4, None, ("weak", "assumed")),
    ],
)
def test_backward_passes_that_workers_divide_show_that_they_share_a_batch(swept, first, second, kind):
    """As scripts do that accumulate gradients over so many passes of all workers."""
    one, two = once(swept)
    curve = sweep_curve("", [replace(one, passes=first), replace(two, passes=second)], SweepOptions())
    assert (curve.kind, curve.kind_from) == kind


def test_batches_that_were_seen_count_before_backward_passes(swept):
    one, two = (replace(runs, samples=16.0 * runs.workers, passes=4 // runs.workers) for runs in once(swept))
    assert sweep_curve("", [one, two], SweepOptions()).kind_from == "batches"


def test_one_run_each_shows_no_interval_and_is_not_forecast(swept):
    single = [SweptRuns(runs.workers, runs.launches[:1], runs.steps, runs.parts_s) for runs in swept]
    curve = sweep_curve("", single, SweepOptions())
    assert curve.points[1].speedup.low is None
    assert "--repeats 3" in curve.no_forecast
    assert needs_runs(curve)


@pytest.mark.parametrize("shift", [-2.0, -3.0, 6.0])
def test_a_step_that_jumps_though_it_is_known_well_has_no_forecast_but_a_next_step(swept, shift):
    jumped = [replace(run, log_mean=run.log_mean + shift) for run in swept[1].launches]
    curve = sweep_curve("", [swept[0], replace(swept[1], launches=jumped)], SweepOptions())
    assert curve.no_forecast.endswith("takes; see that both do the same work, or leave one of them out of --counts")


def test_runs_that_were_ended_early_do_not_tell_by_their_steps_what_workers_share(swept):
    first, second = (replace(runs, launches=runs.launches[:1]) for runs in swept)
    fewer = replace(second, steps=first.steps // 2, ended_early=True)
    assert sweep_curve("", [first, fewer], SweepOptions()).kind_from == "assumed"


@pytest.mark.parametrize(("factor", "needed"), [(1.05, False), (1.19, False), (1.3, True), (3.0, True)])
def test_rounds_are_needed_while_the_ends_of_a_speed_up_lie_far_apart(curve, factor, needed):
    known = IntervalOverLaunches(1.8, 1.8, 1.8 * factor)
    points = [curve.points[0], curve.points[1].model_copy(update={"speedup": known})]
    assert needs_runs(curve.model_copy(update={"points": points})) is needed


def test_other_programs_are_named_where_runs_lie_too_far_apart(swept):
    far = [replace(run, log_mean=run.log_mean + shift) for run, shift in zip(swept[1].launches, (0, 1, 2), strict=True)]
    busy = replace(swept[1], launches=far, foreign_cores=1.7)
    assert "other programs kept up to 1.7 cores busy" in sweep_curve("", [swept[0], busy], SweepOptions()).no_forecast
    farther = replace(busy, launches=[replace(run, log_mean=3 * run.log_mean) for run in far])
    assert "more runs would hardly help" in sweep_curve("", [swept[0], farther], SweepOptions()).no_forecast
    idle = replace(busy, foreign_cores=0.1)
    assert "other programs" not in sweep_curve("", [swept[0], idle], SweepOptions()).no_forecast


def test_a_command_that_trains_on_other_processes_than_asked_for_is_named(tmp_path):
    runs, problem = read_runs(4, [(1, stored(tmp_path / "1", 2, 1.0))])
    assert runs is not None
    assert "trained on 2 processes" in problem


@pytest.mark.parametrize(("cores", "shared"), [(1, True), (2, False), (4, False)])
def test_more_workers_than_cores_of_their_host_are_named(tmp_path, cores, shared):
    store = stored(tmp_path / "1", 2, 9.0)
    (store.path / "machine.json").write_text(json.dumps({"id": "one", "cores": cores}))
    runs, problem = read_runs(2, [(1, store)])
    assert runs is not None
    assert (problem is not None and "2 workers shared 1 core of one host" in problem) == shared


def test_the_section_has_every_point_and_two_pictures(curve):
    section = sweep_section(SweepAnswer(command=["train.py"], curves=[curve], missing=[]))
    text = csv_of([section])
    assert [f"{count} (forecast)" in text for count in (4, 8, 16, 32)] == [True, True, False, False]
    (figures,) = [part for part in section.parts if isinstance(part, Figures)]
    assert [figure.title.split()[0] for figure in figures.draw()] == ["Speed-up", "Efficiency"]


def test_speed_ups_over_many_doublings_are_drawn_by_doublings(curve):
    far = curve.model_copy(
        update={"forecast": [*curve.forecast, curve.forecast[-1].model_copy(update={"workers": 64})]}
    )
    section = sweep_section(SweepAnswer(command=["train.py"], curves=[far], missing=[]))
    [figures] = [part for part in section.parts if isinstance(part, Figures)]
    assert "speed-up (log scale)" in figures.draw()[0].svg


def test_a_speed_up_whose_runs_lie_far_apart_is_inconclusive_in_sentence_and_table(swept, tmp_path):
    stores = [(number, stored(tmp_path / f"{number}", 2, transfer)) for number, transfer in enumerate((1, 60, 900))]
    runs, _ = read_runs(2, stores)

    curve = sweep_curve("", [swept[0], runs], SweepOptions())

    assert curve.sentence.startswith("the speed-up on 2 workers is inconclusive (")
    assert 0.0 < curve.loss.share < 1.0
    text = csv_of([sweep_section(SweepAnswer(command=["train.py"], curves=[curve], missing=[]))])
    assert text.count("inconclusive") >= len(["speed-up", "efficiency"])


@pytest.mark.parametrize(("counts", "rounds"), [(["1", "2"], 4), (["2"], 3)])
def test_rounds_are_added_within_the_budget_where_a_speed_up_is_known_too_little(tmp_path, counts, rounds):
    plan = read_plan(["true", "{workers}"], {"workers": counts}, 3)
    store = sweep_store(plan, tmp_path / "sweep")
    for setting in plan.settings:
        for number, transfer in enumerate((1, 60, 900), 1):
            folder = plan.folder_of(store.path, setting) / f"{number}"
            stored(folder, setting.workers, transfer if setting.workers > 1 else 0.05 * number)
    seconds = iter(range(0, 1000, 2))
    with store.lock():
        ended, _ = run_rounds(plan, store, {}, 12.0, Silent(), clock=lambda: next(seconds))
    assert ended.repeats == rounds
    assert store.get(STORED)["repeats"] == rounds


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_a_sweep_claims_no_number_whose_runs_do_not_show_it(swept, capsys, spread):
    apart = [
        replace(
            runs, launches=[replace(run, log_mean=run.log_mean + spread * n) for n, run in enumerate(runs.launches)]
        )
        for runs in swept
    ]
    curve = sweep_curve("", apart, SweepOptions(batch=16, samples=3200, price=2.0))
    section = sweep_section(SweepAnswer(command=["train.py"], curves=[curve], missing=[]))
    for width in (80, 120):
        PlainConsole(width=width).print(SectionText([section]))
    text = markdown_of(section) + capsys.readouterr().out

    assert "workers" in text
    assert "…" not in text
    assert not [*too_wide(text), *large_percentages(text), *further_digits(text)]


STORED_ANSWER = Path(__file__).parent.parent / "data" / "sweep.json"
"""From which the page of the report's keys has its examples."""


def test_the_stored_answer_has_the_form_of_todays(curve):
    stored_keys = json.loads(STORED_ANSWER.read_text("utf-8"))
    todays = SweepAnswer(command=["train.py", "{workers}"], curves=[curve], missing=[]).model_dump()

    assert keys_of(stored_keys) == keys_of(json.loads(json.dumps(todays)))


def keys_of(value):
    """Return the keys of JSON at all depths, with their place."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    return {f"{key}{below}" for key, each in value.items() for below in {""} | {f".{k}" for k in keys_of(each)}}


def markdown_of(section):
    return formats_of(SectionFormat)["markdown"].text("sweep", [section])
