"""What an asynchronous worker's last step alone changes is what its weights and batch lead to, or it is named."""

from dataclasses import replace
from pathlib import Path

import pytest
from simulated import a_launch, a_trial, a_worker
from test_replays import Replaying, replay

from steptime.catalog.optimizer import Optimizer
from steptime.results.records import Launch, Replay, StepsAlone, TimedPause
from steptime.validity.missing_evidence import failed_replay, replay_flags
from steptime.validity.steps_alone import can_repeat, other_steps_alone, unrepeated
from steptime.validity.training_evidence import mistake

TRIAL = a_trial(strategy="ps_async", workers=2, servers=1, optimizer=Optimizer(momentum=0.5))
GRADIENT = [0.3, -0.2, 0.1, 0.4]
STEP = [-0.1 * each for each in GRADIENT]


def sketch(sums):
    return {"weight": [10.0, sum(each * each for each in sums) ** 0.5, *sums]}


def behind(last):
    """Return the sketches behind three steps alone, of which the last goes on by momentum and changes ``last`` more."""
    first, second = [1.0, 1.0, 1.0, 1.0], [1.2, 0.9, 1.0, 0.8]
    gone_on = [now + 0.5 * (now - then) for then, now in zip(first, second, strict=True)]
    return [sketch(first), sketch(second), sketch([each + more for each, more in zip(gone_on, last, strict=True)])]


def a_launch_with(last=STEP, loss: float = 2.0, number: int = 0, **changes) -> Launch:
    alone = StepsAlone(batch=30, loss=loss, weights=behind(last))
    workers = [replace(a_worker([0.1, 0.2], rank), alone=alone, losses=[(1, 2.0)], **changes) for rank in range(2)]
    return a_launch(TRIAL, number, workers=workers)


def a_repetition(rank: int = 1, launch: int = 0, reason: str | None = None, place: str | None = None) -> Replay:
    losses, weights = ([], []) if reason else ([[2.0, 2.0]], [sketch(STEP)])
    return Replay(TRIAL.id, 1.0, [1], losses, weights, [], reason, launch=launch, rank=rank, place=place)


def a_launch_that_paused(last=STEP, loss: float = 2.0) -> Launch:
    """Return a launch whose steps behind the timed ones are right, and those in the pause as given."""
    alone = StepsAlone(batch=12, loss=loss, weights=behind(last))
    return a_launch_with(pause=TimedPause(behind=1, steps=4, loss=None, weights=None, alone=alone))


def test_a_step_that_changes_what_its_gradient_does_shows_nothing():
    assert other_steps_alone(TRIAL, a_launch_with(), [a_repetition()]) is None


WRONG = [
    [0.0] * 4,  # the push was left out
    [-0.1 * each for each in (0.1, 0.4, 0.3, -0.2)],  # an old gradient
    [2 * each for each in STEP],  # applied twice
    [0.9 * each for each in STEP],  # of another batch
    [1.0015 * each for each in STEP],  # in half precision
]


@pytest.mark.parametrize("last", WRONG)
def test_a_step_in_a_pause_that_changes_something_else_is_named(last):
    found = other_steps_alone(TRIAL, a_launch_that_paused(last), [a_repetition(), a_repetition(place="pause")])

    assert (found or "").startswith("the last step that worker 1 took alone in the pause of the timed steps changed")


def test_a_right_step_in_a_pause_shows_nothing():
    assert other_steps_alone(TRIAL, a_launch_that_paused(), [a_repetition(place="pause"), a_repetition()]) is None


def test_a_loss_of_part_of_the_batch_in_a_pause_is_named():
    found = other_steps_alone(TRIAL, a_launch_that_paused(loss=1.9), [a_repetition(place="pause")])

    assert "in the pause of the timed steps had a loss of 1.9" in (found or "")


def test_both_places_of_a_launch_are_repeated():
    launch = a_launch_that_paused()

    assert [place for _, place in unrepeated(TRIAL, [launch], [])] == ["pause", None]
    assert [place for _, place in unrepeated(TRIAL, [launch], [a_repetition()])] == ["pause"]
    assert unrepeated(TRIAL, [launch], [a_repetition(), a_repetition(place="pause")]) == []


@pytest.mark.parametrize("left_out", [1, 2])
def test_a_step_alone_that_leaves_the_weights_as_they_were_is_named_without_a_repetition(left_out):
    seen = behind(STEP)
    seen[left_out] = seen[left_out - 1]
    alone = StepsAlone(batch=12, loss=2.0, weights=seen)
    launch = a_launch_with(pause=TimedPause(behind=1, steps=4, loss=None, weights=None, alone=alone))

    assert other_steps_alone(TRIAL, launch, []) == (
        "a step that worker 0 took alone in the pause of the timed steps left the weights as they were"
    )


@pytest.mark.parametrize("last", WRONG)
def test_a_step_that_changes_something_else_is_named(last):
    found = other_steps_alone(TRIAL, a_launch_with(last), [a_repetition()])

    assert (found or "").startswith("the last step that worker 1 took alone changed the weights by what is")


def test_a_loss_of_part_of_the_batch_is_named():
    assert other_steps_alone(TRIAL, a_launch_with(loss=1.9), [a_repetition()]) == (
        "the last step that worker 1 took alone had a loss of 1.9, and the same weights and batch have 2"
    )


def test_a_wrong_step_alone_counts_against_its_trial():
    launches = [a_launch_with(), a_launch_with([0.0] * 4, number=1)]

    assert mistake(TRIAL, launches, [a_repetition(), a_repetition(launch=1)]) == (
        "its timed launches train something else: the last step that worker 1 took alone changed the weights by what "
        "is 1e+02 % away from the update of the same weights and batch, and 0.052 % are allowed (launch 2)"
    )


def test_launches_without_a_repeated_step_are_named():
    still = Replay(TRIAL.id, 2.0**-40, [1, 3], [[2.0, 2.0]] * 2, [None] * 2, [[], []])
    launches = [a_launch_with(), a_launch_with(number=1)]

    assert replay_flags(TRIAL, launches, [still, a_repetition()]) == [
        "timed steps not repeated: replays.jsonl has no replay of 1 of 2 launches; run the study again"
    ]
    assert replay_flags(TRIAL, launches, [still, a_repetition(), a_repetition(launch=1)]) == []


def test_a_step_whose_repetition_failed_costs_the_rank():
    reason = "worker-0: RuntimeError: no"

    assert (failed_replay(TRIAL, [a_launch_with()], [a_repetition(reason=reason)]) or "").endswith(reason)
    assert failed_replay(TRIAL, [a_launch_with()], [a_repetition(reason=reason), a_repetition()]) is None


def test_batches_that_another_process_gives_are_not_repeated():
    dataset = TRIAL.model_copy(update={"dataset": "digits", "loader": "native"})

    assert unrepeated(dataset, [a_launch_with(drawn=31)], [])
    assert not unrepeated(dataset, [a_launch_with(drawn=None)], [])


@pytest.mark.parametrize(
    "changes", [{"strategy": "allreduce"}, {"workers": 1}, {"workload": "alexnet", "input_shape": (3, 64, 64)}]
)
def test_steps_that_others_show_or_that_draw_masks_are_not_repeated(changes):
    fields = {"strategy": "ps_async", "workers": 2, "servers": 1, **changes}

    assert not can_repeat(a_trial(**fields))


def test_the_step_is_repeated_from_the_weights_that_the_launch_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("trials") / TRIAL.id / "launch-0"
    folder.mkdir(parents=True)
    for rank in range(2):
        (folder / f"alone-weights-{rank}.npz").write_bytes(b"")
    executor, kept = Replaying(), []
    executor.workers = 2
    replay(executor, [a_launch_with()], [], kept.append, TRIAL)

    (repeated,) = [each for each in kept if each.rank is not None]
    begins, schedule = executor.jobs[-1]["begins"], executor.jobs[-1]["schedule"]
    assert begins == {
        "weights": str(tmp_path / folder / f"alone-weights-{repeated.rank}.npz"),
        "batches": [29, 29],
    }
    assert (schedule["first_turn"], schedule["turns"], repeated.launch) == (repeated.rank, True, 0)
