"""What frameworks mark themselves, on clocks that differ."""

from dataclasses import replace

import numpy as np
import pytest
from launch_phases import launch_of
from simulated import a_trial

from steptime.analysis.ablation.accounts import covered_by, marked_phases
from steptime.analysis.ablation.breakdown import break_down, closing_phases
from steptime.analysis.ablation.form import Phase
from steptime.analysis.ablation.stages import aligned, uncertainty_s
from steptime.results.ablation_records import AblationLaunch
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store

MARKS = ["input", "forward", "backward", "exchange", "update"]
LASTS = (0.001, 0.010, 0.020, 0.005, 0.002)
SLOW = 0.030
STEPS = 8


def marked_launch(*, offset: float = 0.0, drift: float = 0.0, rtt: float = 1e-4, hosts: int = 2) -> AblationLaunch:
    """Two workers; the second arrives later by SLOW, and its clock differs from the first's."""
    launch = launch_of(0)
    workers = []
    for worker in launch.workers:
        late = SLOW * worker.rank
        steps = []
        for step in range(STEPS):
            start = 1.0 + step * (sum(LASTS) + SLOW)
            ends = start + np.cumsum(LASTS) + [0.0, 0.0, late, SLOW, SLOW]
            steps.append([start, *ends])
        true = np.array(steps)
        own = (true - offset) / (1.0 + drift) if worker.rank else true
        clock = [
            {
                "at_s": at,
                "offset_s": (offset + drift * at) if worker.rank else 0.0,
                "rtt_s": rtt if worker.rank else 0.0,
            }
            for at in (0.0, 10.0)
        ]
        pieces = [("bucket", 1000, float(row[2]), float(row[4])) for row in own]
        host = f"host{worker.rank % hosts}"
        workers.append(replace(worker, host=host, clocks=clock, marks=MARKS, marked=own.tolist(), transfers=pieces))
    return replace(launch, workers=workers)


@pytest.mark.parametrize(("offset", "drift"), [(0.0, 0.0), (5.0, 0.0), (-3.0, 5e-5)])
def test_waiting_for_the_late_worker_is_split_from_the_transfer_whatever_the_clocks_say(offset, drift):
    phases = marked_phases(marked_launch(offset=offset, drift=drift), synchronous=True)
    assert phases["sync_wait"] == pytest.approx(SLOW / 2, rel=1e-3)
    assert phases["comm_exposed"] == pytest.approx(LASTS[3], rel=2e-3)


def test_arrivals_closer_than_the_clocks_can_tell_are_not_claimed():
    phases = marked_phases(marked_launch(rtt=2 * SLOW), synchronous=True)
    assert not {"sync_wait", "comm_exposed"} & set(phases)


def test_workers_of_one_host_need_no_comparison_of_clocks():
    assert uncertainty_s(marked_launch(hosts=1).workers) == 0.0


def test_workers_of_two_hosts_are_as_uncertain_as_the_longest_round_trip():
    assert uncertainty_s(marked_launch(rtt=3e-4).workers) == 3e-4


def test_alignment_takes_a_constant_drift_out():
    worker = marked_launch(offset=2.0, drift=1e-4).workers[1]
    assert aligned(worker, worker.marked)[0, 0] == pytest.approx(1.0, abs=1e-6)


def test_phases_between_marks_last_as_long_as_they_last():
    phases = marked_phases(marked_launch(), synchronous=True)
    assert phases["input_wait"] == pytest.approx(LASTS[0])
    assert phases["forward"] == pytest.approx(LASTS[1])
    assert phases["update"] == pytest.approx(LASTS[4])


def test_an_asynchronous_exchange_is_all_transfer():
    phases = marked_phases(marked_launch(), synchronous=False)
    assert phases["sync_wait"] == 0.0


def test_a_launch_without_marks_has_no_phases_of_its_own():
    assert marked_phases(launch_of(0), synchronous=True) == {}


def test_the_communication_of_a_step_is_the_time_in_which_any_piece_was_under_way():
    found = break_down(a_trial(strategy="allreduce", workers=2), [marked_launch()], [])
    expected = np.mean([LASTS[2] + LASTS[3] + SLOW, LASTS[2] + LASTS[3] + SLOW])
    assert found.overlap.communication_s.value_s == pytest.approx(expected)
    assert found.overlap.communication_s.how == "direct"


def test_ablation_launches_come_back_from_the_store_as_they_were(tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={})
    trial = a_trial(strategy="allreduce", workers=2)
    store.add_trial(trial)
    launch = replace(marked_launch(hosts=1), trial=trial.id)
    store.append(launch)
    assert store.records(ABLATION, trial.id) == [launch]


def test_waiting_until_the_last_worker_has_a_piece_ready_is_no_communication():
    launch = marked_launch()
    first, second = launch.workers
    late = [(name, size, ready + 0.004, done) for name, size, ready, done in second.transfers]
    launch = replace(launch, workers=[first, replace(second, transfers=late)])
    found = break_down(a_trial(strategy="allreduce", workers=2), [launch], [])
    assert found.overlap.communication_s.value_s == pytest.approx(LASTS[2] + LASTS[3] + SLOW - 0.004)


def test_of_two_accounts_that_differ_the_one_is_taken_with_which_phases_sum_to_the_step():
    """Two hosts, one slow: its loader holds up a step by 11 ms, of which marks on the other host see nothing."""
    stages = {"forward": 0.010, "backward": 0.020, "local": 0.002, "exchange": 0.030, "step": 0.012, "marked": 0.0}
    launch = launch_of(1, stages=stages, noise=0.001)
    lasts = np.cumsum([0.001, 0.010, 0.020, 0.030, 0.002])  # input, forward, backward, exchange, update
    workers = [
        replace(worker, marks=MARKS, marked=[[0.1 * step, *(0.1 * step + lasts)] for step in range(60)])
        for worker in launch.workers
    ]
    found = break_down(a_trial(workers=2, strategy="allreduce"), [replace(launch, workers=workers)] * 2, [])
    assert found.native["input_wait"].value_s == pytest.approx(0.001)
    assert found.phases["input_wait"].value_s == pytest.approx(0.012, rel=0.1)
    assert found.phases["input_wait"].how == "derived"
    assert found.closure_error < 0.01


def test_of_two_accounts_that_differ_the_marks_are_taken_where_they_close():
    """The ablation cannot tell the exchange; with its account of the input the phases would exceed the step."""
    phase = {"low_s": None, "high_s": None}
    by_ablation = {"input_wait": Phase(value_s=0.030, how="derived", **phase), "forward": None}
    native = {
        "input_wait": Phase(value_s=0.010, how="direct", **phase),
        "forward": Phase(value_s=0.090, how="direct", **phase),
    }
    empty = dict.fromkeys(("h2d", "update"))
    taken = closing_phases({**by_ablation, **empty}, {**native, **empty}, 0.100, {"input_wait"})
    assert taken["input_wait"] == native["input_wait"].model_copy(update={"low_s": 0.010, "high_s": 0.030})


def test_accounts_that_were_not_shown_to_differ_are_chosen_by_their_width_alone():
    narrow = Phase(value_s=0.010, low_s=0.009, high_s=0.011, how="direct")
    wide = Phase(value_s=0.030, low_s=-0.040, high_s=0.100, how="derived")
    empty = dict.fromkeys(("h2d", "update"))
    taken = closing_phases({"input_wait": wide, **empty}, {"input_wait": narrow, **empty}, 0.030, set())
    assert taken["input_wait"] == narrow


@pytest.mark.parametrize(
    ("marks", "exchanging", "covered"),
    [
        (["input", "forward", "backward", "update"], False, "input_wait; forward; backward; update"),
        (["input", "h2d", "forward"], True, "input_wait; h2d; forward"),
        (["input", "backward", "exchange"], True, "input_wait; forward + backward; comm_exposed + sync_wait"),
        (["exchange", "update"], True, "input_wait + forward + backward + comm_exposed + sync_wait; update"),
        (["input", "update"], True, "input_wait; forward + backward + comm_exposed + sync_wait + update"),
    ],
)
def test_what_passes_between_two_marks_is_all_phases_between_them(marks, exchanging, covered):
    assert "; ".join(map(" + ".join, covered_by(marks, exchanging=exchanging))) == covered


def test_an_exchange_without_a_mark_in_front_gives_no_phase_of_its_own():
    launch = marked_launch()
    marks = ["input", "exchange", "update"]
    kept = [0, *(1 + MARKS.index(mark) for mark in marks)]
    workers = [
        replace(worker, marks=marks, marked=[[row[index] for index in kept] for row in worker.marked])
        for worker in launch.workers
    ]
    found = marked_phases(replace(launch, workers=workers), synchronous=True)
    assert set(found) == {"input_wait", "update"}
