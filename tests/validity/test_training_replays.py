"""Trainings show on which batches they trained, by themselves and beside a replay of their first steps."""

from dataclasses import replace

import pytest
from simulated import a_check, a_store, a_training, a_trial, an_epoch

from steptime.analysis.summary import summarise
from steptime.results.records import Replay
from steptime.runner.training_replay import drawn_steps
from steptime.study.training import Training
from steptime.validity.accuracy_evidence import kept_losses, training_flags, training_mistake

TRIAL = a_trial(dataset="digits", loader="native", training=Training(epochs=2))
STEPS = 100
LOSSES = {1: 2.0, 8: 1.5, 24: 1.0, 64: 0.8, 100: 0.4, 160: 0.3, 200: 0.4}


def a_run(losses=LOSSES, drawn: int | None = STEPS, number: int = 0, batch: int = 7):
    """Return a training of two epochs of 100 steps, which kept ``losses`` and took ``drawn`` batches in each."""
    own = [(step, loss) for step, loss in losses.items() if step % STEPS]
    epochs = [
        [
            an_epoch(
                losses=[each for each in own if STEPS * epoch < each[0] < STEPS * (epoch + 1)],
                training_loss=losses[STEPS * (epoch + 1)],
                drawn=drawn,
                batches=[(24, 8, batch)] if not epoch else [],
            )
        ]
        for epoch in range(2)
    ]
    return replace(a_training(TRIAL, number), seed=number, steps_per_epoch=STEPS, epochs=epochs)


def a_replay(nudge: float = 1.0, number: int = 0, to: int = 200, **changes) -> Replay:
    steps = [step for step in LOSSES if step <= to]
    fields = {"losses": [[LOSSES[step]] for step in steps], "weights": [None] * len(steps), "batches": [[(24, 8, 7)]]}
    return Replay(TRIAL.id, nudge, steps, launch=number, **{**fields, **changes})


def test_the_losses_of_a_training_are_those_kept_and_those_behind_epochs():
    assert kept_losses(a_run()) == {step: [loss] for step, loss in LOSSES.items()}


def test_a_training_like_its_replay_shows_nothing():
    assert training_mistake(TRIAL, [a_run(), a_run(number=1)], [a_replay(), a_replay(number=1)]) is None


@pytest.mark.parametrize("step", [1, 8, 24, 64, 100, 160, 200])
def test_a_training_that_leaves_its_replay_is_named_with_the_step(step):
    other = {each: loss * (1.2 if each >= step else 1.0) for each, loss in LOSSES.items()}

    found = training_mistake(TRIAL, [a_run(), a_run(other, number=1)], [a_replay(), a_replay(number=1)])

    assert (found or "").startswith(f"its trainings train something else: after {step} steps worker 0 had a loss of")
    assert (found or "").endswith("(seed 1)")


def test_batches_that_were_not_taken_are_counted():
    assert training_mistake(TRIAL, [a_run(drawn=62)], [a_replay()]) == (
        "its trainings train something else: worker 0 took 124 batches in 200 steps (seed 0)"
    )


def test_other_samples_in_a_batch_are_named():
    found = training_mistake(TRIAL, [a_run(batch=9)], [a_replay()])

    assert "batch 24 of worker 0 has other samples than without timers" in (found or "")


def test_what_lies_behind_the_replayed_steps_is_not_judged():
    other = {**LOSSES, 160: 0.9, 200: 0.9}

    assert training_mistake(TRIAL, [a_run(other)], [a_replay(to=100)]) is None


@pytest.mark.parametrize(
    ("replays", "why"),
    [
        ([], "run the study again"),
        (
            [a_replay(reason="worker-0: RuntimeError: no", losses=[], weights=[], batches=[])],
            "worker-0: RuntimeError: no",
        ),
    ],
)
def test_a_training_without_a_replay_is_named(replays, why):
    assert training_flags(TRIAL, [a_run()], replays) == [
        f"timed steps not repeated: replays.jsonl has no replay of 1 of 1 trainings; {why}"
    ]
    assert training_flags(TRIAL, [a_run()], [*replays, a_replay()]) == []


def test_trainings_from_before_they_kept_losses_are_not_replayed():
    assert training_flags(TRIAL, [a_training(TRIAL)], []) == []


def test_a_replay_ends_behind_64_steps_at_least_and_anywhere_behind_them():
    lengths = {drawn_steps(a_run())[-1] for _ in range(300)}

    assert lengths == {64, 100, 160, 200}


def test_a_short_training_is_replayed_whole():
    short = replace(a_run(), steps_per_epoch=20, epochs=[[an_epoch(losses=[(1, 2.0), (8, 1.0)], training_loss=0.5)]])

    assert drawn_steps(short) == [1, 8, 20]


def test_a_wrong_training_has_no_place(tmp_path):
    store = a_store(tmp_path / "results", equivalence={"enabled": True})
    store.add_trial(TRIAL)
    for workload in ("mlp", "the native loader of digits"):
        store.append_equivalence(a_check(workload=workload, trials=[TRIAL.id]))
    store.append(a_run({**LOSSES, 64: 2.0}))
    store.append_replay(a_replay())

    summary = summarise(store)

    assert (summary.trials[0].status, summary.accuracy) == ("not_equivalent", [])
