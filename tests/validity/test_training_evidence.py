"""Timed launches show what they trained: the workers of one beside each other, and a launch beside its replay."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import a_check, a_launch, a_store, a_trial, a_worker

from steptime.analysis.summary import summarise
from steptime.results.records import Replay, StepsAlone, TimedPause
from steptime.validity.kept_losses import FROZEN, steps_of
from steptime.validity.training_evidence import differs_from_replay, mistake, own_mistake

STEPS = [1, 8, 24]
LOSSES = ((3.0, 3.1), (2.0, 2.1), (0.9, 0.95))
"""Of two workers behind these steps."""


def a_trial_of(strategy="allreduce", workers=2):
    return a_trial(framework="pytorch", strategy=strategy, workers=workers, servers=int(strategy.startswith("ps")))


def sketches(size=1.0, seed=0):
    """Return the short sketches of two arrays whose updates have about a length."""
    rng = np.random.default_rng(seed)
    return {name: [10.0 * size, 2.0 * size, *(size * rng.normal(0.0, 1.0, 4)).tolist()] for name in ("bias", "weight")}


def workers_of(losses=LOSSES, weights=None, **changes):
    """Return two workers of 24 steps, of which 5 warmed up; ``weights`` are a list of sketches for each."""
    held = weights or [[sketches()], [sketches()]]
    return [
        replace(
            a_worker(np.cumsum([0.1] * 18).tolist(), rank),
            warmup_ends_s=[-0.5, -0.4, -0.3, -0.2, -0.1],
            loss_first=None,
            loss_last=losses[-1][rank],
            losses=[(step, each[rank]) for step, each in zip(STEPS, losses, strict=True)],
            samples=8,
            drawn=25,
            batches=[(step, 8, 100 * rank + step) for step in STEPS],
            weights=held[rank],
            **changes,
        )
        for rank in range(2)
    ]


def a_launch_of(trial, **changes):
    return a_launch(trial, workers=workers_of(**changes))


def a_replay(trial, nudge=1.0, losses=LOSSES, weights=None):
    return Replay(
        trial=trial.id,
        nudge=nudge,
        steps=STEPS,
        losses=[list(each) for each in losses],
        weights=[None, None, weights or sketches()],
        batches=[[(step, 8, 100 * rank + step) for step in STEPS] for rank in range(2)],
    )


def test_a_launch_like_its_replay_shows_nothing():
    trial = a_trial_of()

    assert mistake(trial, [a_launch_of(trial)], [a_replay(trial)]) is None


PAUSED = TimedPause(behind=2, steps=1, loss=LOSSES[1][0], weights=sketches(seed=3), alone=None)
"""Behind step 8: five of the warm-up, one ahead of the timed ones, and two of these."""


def a_launch_that_paused(trial, **changes):
    """Return a launch in whose pause the first worker has ``changes``."""
    pauses = [replace(PAUSED, **changes), replace(PAUSED, loss=LOSSES[1][1])]
    workers = [
        replace(each, ends_s=each.ends_s[:-1], losses=[(1, each.losses[0][1])], pause=pause)
        for each, pause in zip(workers_of(), pauses, strict=True)
    ]
    return a_launch(trial, workers=workers)


def a_replay_of_the_pause(trial):
    return replace(a_replay(trial), weights=[None, sketches(seed=3), sketches()])


def test_a_launch_that_paused_is_compared_there_and_shows_nothing_where_it_is_right():
    trial = a_trial_of()

    assert steps_of(a_launch_that_paused(trial).workers[0]) == 24
    assert mistake(trial, [a_launch_that_paused(trial)], [a_replay_of_the_pause(trial)]) is None


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"weights": sketches(seed=4)}, "after 8 steps their weights are"),
        ({"loss": 2.2}, "after 8 steps worker 0 had a loss of 2.2"),
    ],
)
def test_what_is_wrong_in_the_middle_alone_is_named_by_the_pause(changes, found):
    trial = a_trial_of()

    assert found in (mistake(trial, [a_launch_that_paused(trial, **changes)], [a_replay_of_the_pause(trial)]) or "")


def test_a_batch_of_another_size_is_named():
    trial = a_trial_of()

    found = own_mistake(trial, a_launch(trial, workers=[replace(each, samples=4) for each in workers_of()]))

    assert found == "its timed launches train something else: worker 0 trained on batches of 4, not 8"


def test_a_step_for_which_no_batch_was_taken_is_counted():
    trial = a_trial_of()

    found = own_mistake(trial, a_launch(trial, workers=[replace(each, drawn=23) for each in workers_of()]))

    assert found == "its timed launches train something else: worker 0 took 23 batches in 24 steps"


def test_workers_that_average_gradients_end_with_the_same_weights():
    trial = a_trial_of()

    found = own_mistake(trial, a_launch_of(trial, weights=[[sketches()], [sketches(seed=1)]]))

    assert "worker 1 has other weights than worker 0" in found


def test_one_array_that_is_not_exchanged_is_named():
    trial, other = a_trial_of(), sketches()
    other["bias"] = sketches(seed=1)["bias"]

    assert "apart (bias)" in own_mistake(trial, a_launch_of(trial, weights=[[sketches()], [other]]))


def test_copies_that_differ_by_rounding_pass():
    trial = a_trial_of()

    assert own_mistake(trial, a_launch_of(trial, weights=[[sketches()], [sketches(1.0 + 1e-6)]])) is None


def test_workers_without_weights_are_not_compared():
    trial = a_trial_of()

    assert own_mistake(trial, a_launch_of(trial, weights=[[sketches()], [None]])) is None


def moved(base, by, seed):
    """Return sketches some way from ``base``."""
    step = sketches(by, seed)
    return {name: [*base[name][:2], *np.add(base[name][2:], step[name][2:]).tolist()] for name in base}


def turns(steps):
    """Return what two workers saw behind turns of which each moved the weights by a length."""
    seen = [sketches()]
    for number, by in enumerate(steps, 1):
        seen.append(moved(seen[-1], by, number))
    return [[seen[0], seen[2]], [seen[1], seen[3]]]


def test_workers_of_servers_see_each_others_steps():
    trial = a_trial_of("ps_async")

    assert own_mistake(trial, a_launch_of(trial, weights=turns([0.01, 0.01, 0.01]))) is None


def test_a_worker_that_keeps_its_own_weights_is_far_from_the_others():
    trial = a_trial_of("ps_async")
    own, other = sketches(), sketches(seed=5)

    found = own_mistake(trial, a_launch_of(trial, weights=[[own, own], [other, other]]))

    assert "one step apart the workers 0 and 1 had other weights" in found


def test_steps_whose_updates_no_server_counted_are_counted():
    trial = a_trial_of("ps_async")

    found = own_mistake(trial, a_launch_of(trial, weights=turns([0.01, 0.01, 0.01]), staleness={"0": 1, "1": 2}))

    assert found == "its timed launches train something else: the servers counted 3 updates in 18 steps of worker 0"


def test_a_worker_whose_gradients_reach_no_server_changes_nothing():
    trial = a_trial_of("ps_async")
    trial = trial.model_copy(update={"optimizer": trial.optimizer.model_copy(update={"momentum": 0.0})})

    found = own_mistake(trial, a_launch_of(trial, weights=turns([0.01, 1e-7, 0.01])))

    assert "the gradients of worker 0 change nothing" in found


def test_momentum_that_goes_on_is_not_a_gradient():
    trial, first = a_trial_of("ps_async"), sketches()
    second = moved(first, 0.01, 1)
    sums = {name: np.subtract(second[name][2:], first[name][2:]) for name in first}
    third = {name: [*each[:2], *(np.array(each[2:]) + 0.9 * sums[name]).tolist()] for name, each in second.items()}
    fourth = moved(third, 0.01, 2)

    found = own_mistake(trial, a_launch_of(trial, weights=[[first, third], [second, fourth]]))

    assert "the gradients of worker 0 change nothing" in found


LATE = (*LOSSES[:2], (1.2, 1.25))


def test_a_loss_that_the_replay_has_not_is_named_with_its_step():
    trial = a_trial_of()
    nudged = a_replay(trial, 1.001, (*LOSSES[:2], (0.9001, 0.9501)))

    found = differs_from_replay(trial, a_launch_of(trial, losses=LATE), [a_replay(trial), nudged])

    assert found == (
        "its timed launches train something else: after 24 steps worker 0 had a loss of 1.2, the same steps without "
        "timers lead to 0.9, and 0.18 % are allowed"
    )


def test_without_nudged_replays_every_difference_counts():
    trial = a_trial_of()
    slightly = (*LOSSES[:2], (0.9001, 0.95))

    assert differs_from_replay(trial, a_launch_of(trial, losses=slightly), [a_replay(trial)]) is not None


def test_what_nudged_replays_spread_is_allowed():
    trial = a_trial_of()
    nudged = a_replay(trial, 1.001, (*LOSSES[:2], (0.91, 0.96)))
    near = (*LOSSES[:2], (0.93, 0.98))

    assert differs_from_replay(trial, a_launch_of(trial, losses=near), [a_replay(trial), nudged]) is None


def test_nothing_is_claimed_where_nudged_replays_lead_anywhere():
    trial = a_trial_of()
    nudged = a_replay(trial, 1.001, (*LOSSES[:2], (1.0, 0.85)))

    assert differs_from_replay(trial, a_launch_of(trial, losses=LATE), [a_replay(trial), nudged]) is None


def test_weights_at_the_end_are_compared():
    trial = a_trial_of()
    replays = [a_replay(trial, nudge, weights=sketches(size)) for nudge, size in ((1.0, 1.02), (1.001, 1.020001))]

    found = differs_from_replay(trial, a_launch_of(trial), replays)

    assert "after 24 steps their weights are 1.3 % of the update away" in found


def test_a_launch_that_leaves_equal_replays_late_is_named_however_far_nudged_ones_lead():
    trial = a_trial_of()
    nudged = a_replay(trial, 1.001, (*LOSSES[:2], (1.0, 0.85)))
    late = a_launch_of(trial, losses=LATE)

    found = differs_from_replay(trial, late, [*[a_replay(trial)] * 3, nudged])

    assert found.endswith("the same steps without timers lead to 0.9, and were equal up to step 8")


def test_nothing_of_the_kind_is_claimed_where_replays_differ():
    trial = a_trial_of()
    nudged = a_replay(trial, 1.001, (*LOSSES[:2], (1.0, 0.85)))
    other = a_replay(trial, losses=(*LOSSES[:2], (0.9, 0.96)))

    late, replays = a_launch_of(trial, losses=LATE), [a_replay(trial), a_replay(trial), other, nudged]

    assert differs_from_replay(trial, late, replays) is None


def test_batches_of_other_samples_are_named():
    trial = a_trial_of()
    right = a_replay(trial)
    right.batches[1][2] = (24, 8, 7)

    assert "batch 24 of worker 1 has other samples" in differs_from_replay(trial, a_launch_of(trial), [right])


def rounded(share):
    """Return the sketches of an update that is some share of it away from that of ``sketches``."""
    return {name: [*each[:2], *(np.array(each[2:]) * (1.0 + share)).tolist()] for name, each in sketches().items()}


@pytest.mark.parametrize(("share", "named"), [(1e-5, False), (1.8e-4, True)])
def test_a_first_update_in_half_precision_is_named_and_rounding_is_not(share, named):
    trial, right = a_trial_of(), a_replay(a_trial_of())
    right.weights[0] = sketches()

    found = differs_from_replay(trial, a_launch_of(trial, first_update=rounded(share)), [right])

    assert (found is not None) == named
    assert not named or "their first update is 0.0" in found


def test_nothing_is_claimed_of_first_updates_that_the_strategy_rounds():
    trial, right = a_trial_of("onebit"), a_replay(a_trial_of("onebit"))
    right.weights[0] = sketches()

    assert differs_from_replay(trial, a_launch_of(trial, first_update=rounded(0.1)), [right]) is None


NOWHERE = ((3.0, 3.1), (2.9, 3.3), (3.2, 3.05))
"""The losses of both workers at the first weights."""


@pytest.mark.parametrize(
    ("losses", "named"),
    [
        ([(3.0, 3.1), (2.9, 2.1), (3.2, 0.95)], True),
        (LOSSES, False),
        (NOWHERE, False),  # with a rate that small, no worker moves
        ([(3.0, 3.1), (2.9, 2.1), (0.9, 0.95)], False),
    ],
)
def test_an_asynchronous_worker_with_the_losses_of_its_first_weights_is_named_if_others_go_on(losses, named):
    trial = a_trial_of("ps_async")

    found = differs_from_replay(trial, a_launch_of(trial, losses=losses), [a_replay(trial, FROZEN, NOWHERE)])

    assert found == (
        "its timed launches train something else: all losses of worker 0 are those of its first weights, and the "
        "others' are not"
        if named
        else None
    )


@pytest.mark.parametrize(("losses", "status"), [(LOSSES, "ok"), (LATE, "not_equivalent")])
def test_a_trial_unlike_its_replay_has_no_rank(losses, status, tmp_path):
    store, trial = a_store(tmp_path / "results"), a_trial_of()
    store.add_trial(trial)
    store.append_equivalence(a_check(framework="pytorch", strategy="allreduce", workers=2, trials=[trial.id]))
    store.append(a_launch_of(trial, losses=losses))
    for replay in (a_replay(trial), a_replay(trial, 1.001)):
        store.append_replay(replay)

    (found,) = summarise(store).trials

    assert found.status == status


def in_turn(*factors):
    """Return the sketches behind first turns, whose updates are so many times those of the replay."""
    return [
        {name: [numbers[0], *(turn * factor * each for each in numbers[1:])] for name, numbers in sketches().items()}
        for turn, factor in enumerate(factors, 1)
    ]


def of_turns(trial, nudge, *factors):
    return replace(a_replay(trial, nudge), steps=[1, 2], weights=in_turn(*factors))


@pytest.mark.parametrize(
    ("factors", "which"), [((2.0, 1.5), "their first update"), ((1.0, 1.25), "their update after 3 steps in turn")]
)
def test_a_push_that_servers_apply_twice_shows_behind_the_first_turns(factors, which):
    trial = a_trial_of("ps_async")
    launch = a_launch_of(trial, first_turns=in_turn(*factors))

    assert which in differs_from_replay(
        trial, launch, [a_replay(trial, FROZEN, NOWHERE), of_turns(trial, 1.0, 1.0, 1.0)]
    )


def test_first_turns_that_rounding_explains_pass():
    trial = a_trial_of("ps_async")
    launch = a_launch_of(trial, first_turns=in_turn(1.00001, 1.004))
    replays = [of_turns(trial, 1.0, 1.0, 1.0)]

    assert "in turn" in differs_from_replay(trial, launch, replays)
    assert differs_from_replay(trial, launch, [*replays, of_turns(trial, 1.0 + 2.0**-20, 1.0, 1.002)]) is None


def test_an_update_of_another_workers_batch_is_not_compared():
    """TensorFlow's coordinator gives a step to whichever worker is free, so that replays have several first updates."""
    trial = a_trial_of("ps_async")
    twice = in_turn(2.0, 2.0)
    others = ((3.1, 3.0), *LOSSES[1:])

    assert "first update" in differs_from_replay(
        trial, a_launch_of(trial, first_turns=twice), [of_turns(trial, 1.0, 1.0, 1.0)]
    )
    assert (
        differs_from_replay(
            trial, a_launch_of(trial, first_turns=twice, losses=others), [of_turns(trial, 1.0, 1.0, 1.0)]
        )
        is None
    )


def test_turns_behind_the_first_are_compared_where_workers_draw_their_own_batches():
    trial = a_trial_of("ps_async").model_copy(update={"dataset": "digits", "loader": "native"})
    replays, turns = [of_turns(trial, 1.0, 1.0, 1.0)], in_turn(1.0, 1.25)
    drawn = a_launch(trial, workers=workers_of(first_turns=turns))
    given = a_launch(trial, workers=[replace(each, drawn=None) for each in workers_of(first_turns=turns)])

    assert "after 3 steps in turn" in differs_from_replay(trial, drawn, replays)
    assert differs_from_replay(trial, given, replays) is None


def a_launch_of_given_batches(trial, *losses):
    """Return a launch whose batches another process gave, with the losses of both workers behind its steps."""
    return a_launch(trial, workers=[replace(each, drawn=None) for each in workers_of(losses=losses)])


FIRST = (3.0, 3.1)
ALONE_WITH = {stays: StepsAlone(27, 3.15 if stays else 0.9, []) for stays in (True, False)}
"""A last step without the others, of a worker whose loss is as at first, and of one whose is not."""
STAYING = {
    "worker 0": ((FIRST, (2.95, 2.1), (3.1, 0.95)), 0),
    "worker 1": ((FIRST, (2.1, 3.2), (0.95, 3.0)), 1),
    "others diverge": ((FIRST, (2.95, 4.1), (3.1, 9.5)), 0),
}
GOING_ON = {
    "both learn": (FIRST, (2.0, 2.1), (0.9, 0.95)),
    "neither learns": (FIRST, (2.95, 3.2), (3.2, 3.05)),
    "one loss left": (FIRST, (2.95, 2.1), (1.1, 0.95)),
}


@pytest.mark.parametrize(("losses", "rank"), STAYING.values(), ids=STAYING)
def test_a_worker_of_given_batches_whose_losses_stay_as_the_first_weights_make_them_is_named(losses, rank):
    trial = a_trial_of("ps_async").model_copy(update={"dataset": "digits", "loader": "native"})
    launch = a_launch_of_given_batches(trial, *losses)
    launch = replace(launch, workers=[replace(each, alone=ALONE_WITH[each.rank == rank]) for each in launch.workers])

    found = differs_from_replay(trial, launch, [a_replay(trial, FROZEN, NOWHERE)])

    assert found is not None
    assert f"all losses of worker {rank} (" in found
    assert "are as its first weights make them (2.9 to 3.3)" in found


@pytest.mark.parametrize("losses", GOING_ON.values(), ids=GOING_ON)
def test_nothing_is_claimed_of_a_worker_of_given_batches_that_goes_on_or_where_none_does(losses):
    trial = a_trial_of("ps_async").model_copy(update={"dataset": "digits", "loader": "native"})
    launch = a_launch_of_given_batches(trial, *losses)
    launch = replace(launch, workers=[replace(each, alone=ALONE_WITH[True]) for each in launch.workers])

    assert differs_from_replay(trial, launch, [a_replay(trial, FROZEN, NOWHERE)]) is None


MADE = [[3.0 + 0.37 * np.sin(7 * step + 2 * rank) for rank in range(2)] for step in range(1, 161)]
"""What the first weights make of the batches behind 160 steps, of two workers."""
GIVEN_STEPS = [1, 8, 24, 64]


def a_replay_of_every_step(trial):
    """Return the replay with weights that stay whose losses are known behind each of its steps."""
    steps = [*range(1, 161), 400]
    still = replace(a_replay(trial), nudge=FROZEN, steps=steps, losses=[*MADE, [3.0, 3.1]])
    return replace(still, weights=[None] * len(steps), batches=[[], []])


def a_launch_with(trial, *losses):
    """Return a launch of given batches, whose workers have these losses behind GIVEN_STEPS."""
    workers = [
        replace(each, drawn=None, loss_last=None, losses=list(zip(GIVEN_STEPS, own, strict=True)))
        for each, own in zip(workers_of(), losses, strict=True)
    ]
    return a_launch(trial, workers=workers)


STUCK = [MADE[0][0], MADE[9][1], MADE[20][0], MADE[59][1]]
"""Of batches that either worker was given, a few steps early or late."""
LITTLE = [MADE[0][1], MADE[7][1] - 2e-3, MADE[23][1] + 1e-3, MADE[63][1] - 3e-3]
"""Of a worker that hardly learns."""


@pytest.mark.parametrize(
    ("losses", "named"),
    [
        ((STUCK, LITTLE), 0),
        ((LITTLE, STUCK), 1),
        ((STUCK, [MADE[0][1], 2.0, 1.1, 0.4]), 0),
        ((STUCK, [MADE[0][1], 5.0, 9.0, 40.0]), 0),
        ((STUCK, STUCK[::-1]), None),  # no worker moves: the rate is that small
        (([*STUCK[:3], STUCK[3] + 5e-4], LITTLE), None),
        ((LITTLE, LITTLE), None),
    ],
    ids=["hardly learns", "worker 1", "learns", "diverges", "neither moves", "one loss of its own", "both learn"],
)
def test_a_worker_whose_losses_first_weights_make_of_some_batch_is_named_however_little_others_learn(losses, named):
    trial = a_trial_of("ps_async").model_copy(update={"dataset": "digits", "loader": "native"})

    found = differs_from_replay(trial, a_launch_with(trial, *losses), [a_replay_of_every_step(trial)])

    assert (found is None) if named is None else f"the first weights make each of 3 losses of worker {named}" in found
