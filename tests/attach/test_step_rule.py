"""What makes a step, on loops of every kind, played on a clock that only moves when told."""

import json
from itertools import product

import pytest

from steptime.attach import account, recorder
from steptime.attach.batch_amount import BatchAmount
from steptime.attach.record_file import ProcessRecord

MS = 1_000_000
TRAINING, SECOND, EVALUATION = 1, 2, 3


class Played:
    """A recorder on a clock of milliseconds."""

    def __init__(self, folder, monkeypatch):
        self.at = 1_000_000_000
        monkeypatch.setattr(recorder, "now", lambda: self.at)
        self.recorder = recorder.Recorder(ProcessRecord(str(folder), "test"))
        self.folder = folder

    def wait(self, milliseconds):
        self.at += milliseconds * MS

    def request(self, source, milliseconds, region="input"):
        self.recorder.request_begin()
        self.wait(milliseconds)
        self.recorder.request_end(source, region)

    def forward(self, milliseconds, *, training=True, array=None):
        name = self.recorder.forward_begin(training=training, array=array)
        self.wait(milliseconds)
        self.recorder.forward_end(name)

    def backward(self, milliseconds):
        self.recorder.backward_begin()
        self.wait(milliseconds)
        self.recorder.backward_end(synchronised=None)

    def update(self, milliseconds, optimizer=0):
        self.recorder.update_begin()
        self.wait(milliseconds)
        self.recorder.update_end(optimizer)

    def evaluate(self, batches=2):
        for _ in range(batches):
            self.request(EVALUATION, 5)
            self.forward(20, training=False)
        self.request(EVALUATION, 1, "epoch")

    def lines(self, kind):
        self.recorder.end()
        (path,) = self.folder.glob("*.jsonl")
        return [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == kind]

    def steps(self):
        steps = self.lines("step")
        for step in steps:
            assert sum(sums(step).values()) == step["duration_ns"] // MS
        return steps


def sums(step):
    """Return all the milliseconds that a step's line accounts for, by region and gap, apart or not."""
    found = {}
    for part in (step, step.get("apart", {"regions": {}, "gaps": {}})):
        for table in ("regions", "gaps"):
            for name, duration in part[table].items():
                found[name] = found.get(name, 0) + duration // MS
    return found


def milliseconds(table):
    return {name: duration // MS for name, duration in table.items() if duration}


@pytest.fixture
def played(tmp_path, monkeypatch):
    return Played(tmp_path, monkeypatch)


def test_a_step_begins_with_the_request_for_its_batch(played):
    for _ in range(3):
        played.request(TRAINING, 10)
        played.wait(1)
        played.forward(20)
        played.backward(30)
        played.update(5)
        played.wait(2)
    steps = played.steps()
    assert [step["duration_ns"] // MS for step in steps] == [68, 68, 66]
    assert milliseconds(steps[1]["regions"]) == {"input": 10, "forward": 20, "backward": 30, "update": 5}
    assert milliseconds(steps[1]["gaps"]) == {"input>forward": 1, "update>input": 2}


def test_a_wrapper_that_asks_ahead_has_its_last_step_behind_the_end_of_its_loader(played):
    """As accelerate's: it asks for the next batch before it hands out one, so that no request precedes the last."""
    played.request(TRAINING, 10)
    for step in range(3):
        played.request(TRAINING, 10, "input" if step < 2 else "epoch")
        played.forward(20)
        played.backward(30)
        played.update(5)
    assert [step["micro_steps"] for step in played.steps()] == [1, 1, 1]


def test_replays_of_a_graph_that_holds_a_whole_step_are_steps(played):
    """Behind steps that the graph was warmed up and captured by, which asked no loader."""
    for _ in range(2):
        played.forward(20)
        played.backward(30)
        played.update(5)
    for _ in range(4):
        played.request(TRAINING, 10)
        played.recorder.replay_begin(1)
        played.wait(3)
        played.recorder.replay_end()
        played.wait(1)
    steps = played.steps()
    assert [step["duration_ns"] // MS for step in steps[2:]] == [14, 14, 14, 14 - 1]
    assert milliseconds(steps[3]["regions"]) == {"input": 10, "replay": 3}


def test_evaluation_between_two_steps_is_apart(played):
    for step in range(3):
        played.request(TRAINING, 10)
        played.forward(20)
        played.backward(30)
        played.update(5)
        played.wait(3)
        if step == 1:
            played.evaluate()
            played.wait(4)
    steps = played.steps()
    assert [step["number"] for step in steps if "apart" in step] == [1]
    assert (steps[1]["apart"]["end_ns"] - steps[1]["apart"]["begin_ns"]) // MS == 51
    assert milliseconds(steps[1]["apart"]["regions"]) == {"input": 10, "nograd": 40, "epoch": 1}
    assert milliseconds(steps[1]["gaps"]) == {"update>input": 3, "input>input": 4}


def in_region(played, name, milliseconds):
    played.recorder.enter(name)
    played.wait(milliseconds)
    played.recorder.leave(name)


NESTED = {
    "a module": lambda played: in_region(played, "forward", 7),
    "a collective": lambda played: in_region(played, "collective", 7),
    "a checkpoint": lambda played: in_region(played, "save", 7),
}


@pytest.mark.parametrize("inside", NESTED)
@pytest.mark.parametrize("region", ["input", "epoch", "loader_start"])
def test_what_lies_inside_a_request_is_counted_once(played, inside, region):
    for _ in range(3):
        played.request(TRAINING, 10)
        played.recorder.request_begin()
        NESTED[inside](played)
        played.wait(3)
        played.recorder.request_end(TRAINING, region)
        played.forward(20)
        played.backward(30)
        played.update(5)
    steps = played.steps()
    assert [step["duration_ns"] // MS for step in steps] == [75] * 3 if region != "input" else [65, 75, 75]


def test_an_update_inside_of_the_backward_pass_ends_the_step_with_the_pass(played):
    for _ in range(3):
        played.forward(20)
        played.recorder.backward_begin()
        played.wait(10)
        played.update(5)
        played.wait(10)
        played.recorder.backward_end(synchronised=None)
    assert [step["duration_ns"] // MS for step in played.steps()] == [45] * 3


def alternate(played, rounds, order):
    """Train without a loader by optimizers in a given order, 10 ms of other work before each first one."""
    for _ in range(rounds):
        played.wait(10)
        for optimizer in order:
            played.forward(20)
            played.backward(30)
            played.update(5, optimizer)


ROUNDS = {
    "two networks": [0, 1],
    "the second more often": [0, 1, 1],
    "five of one for one of the other": [0, 0, 0, 0, 0, 1],
    "three networks": [0, 1, 2],
}


@pytest.mark.parametrize("order", ROUNDS.values(), ids=ROUNDS)
def test_without_a_loader_optimizers_that_take_turns_make_one_step(played, order):
    alternate(played, 6, order)
    steps = played.steps()
    rounds = [step for step in steps if step["optimizers"] == order]
    assert len(rounds) == 4
    assert [step["duration_ns"] // MS for step in rounds[:-1]] == [55 * len(order) + 10] * 3
    assert len(steps) == 4 + 2 * len(order)


def test_updates_of_one_optimizer_are_steps(played):
    alternate(played, 6, [0])
    assert len(played.steps()) == 6


def test_optimizers_that_no_longer_take_turns_make_a_step_each(played):
    alternate(played, 4, [0, 1])
    alternate(played, 8, [0])
    assert [step["optimizers"] for step in played.steps()[-6:]] == [[0]] * 6


def test_rounds_are_found_again_behind_an_update_that_was_skipped(played):
    alternate(played, 4, [0, 1])
    alternate(played, 1, [0])
    alternate(played, 6, [0, 1])
    assert [step["optimizers"] for step in played.steps()[-4:]] == [[0, 1]] * 4


def test_two_passes_of_one_batch_are_one_step_of_a_round(played):
    """A discriminator has a backward pass for what is real and one for what is not."""
    for _ in range(6):
        played.forward(20)
        played.backward(30)
        alternate(played, 1, [0, 1])
    assert [step["micro_steps"] for step in played.steps()[-3:]] == [3, 3, 3]


def evaluate_with_gradients(played, batches, source):
    for _ in range(batches):
        played.request(source, 5)
        played.forward(20)


def test_a_loader_without_backward_passes_is_an_evaluations(played):
    for _ in range(3):
        train(played, 4)
        evaluate_with_gradients(played, 3, EVALUATION)
    train(played, 2)
    steps = played.steps()
    assert [step["number"] for step in steps if "evaluated" in step.get("flags", [])] == [4, 7, 11]
    apart = {step["number"]: step["apart"]["end_ns"] - step["apart"]["begin_ns"] for step in steps if "apart" in step}
    assert apart == dict.fromkeys([4, 7, 11], 75 * MS)
    assert [step["duration_ns"] // MS for step in steps[8:11]] == [65] * 3


@pytest.mark.parametrize("batches", [1, 2])
def test_loaders_whose_batches_share_a_backward_pass_are_the_trainings(played, batches):
    for _ in range(6):
        for source in (TRAINING, SECOND):
            evaluate_with_gradients(played, batches, source)
        played.backward(30)
        played.update(5)
    assert [step["duration_ns"] // MS for step in played.steps()] == [batches * 50 + 35] * 6


def test_another_loader_of_each_epoch_is_the_trainings(played):
    for epoch in range(4):
        train(played, 3, source=100 + epoch)
    steps = played.steps()
    assert len(steps) == 12
    assert not any("apart" in step for step in steps)


def test_batches_that_another_thread_asks_for_are_those_of_the_step_where_they_go_forward(played):
    for _ in range(4):
        for size in (5, 8):
            played.recorder.elsewhere_requests.add(12 * MS, BatchAmount(size))
        played.forward(20, array=array_of(8))
        played.backward(30)
        played.update(5)
    steps = played.steps()
    assert [step["elsewhere"] for step in steps] == [[count, count * 12 * MS] for count in (4, 2, 2, 0)]
    assert [step["samples"] for step in steps] == [8] * 4


def array_of(rows):
    return type("Rows", (), {"shape": (rows, 3)})()


def test_the_first_step_has_no_part_of_an_evaluation_before_it(played):
    for step in range(3):
        if step == 0:
            played.forward(20, training=False)
            played.wait(500)
        played.forward(20)
        played.backward(30)
        played.update(5)
    assert [step["duration_ns"] // MS for step in played.steps()] == [55] * 3


def train(played, steps, source=TRAINING):
    for _ in range(steps):
        if source is not None:
            played.request(source, 10)
        played.forward(20)
        played.backward(30)
        played.update(5)


def read_training(played, batches):
    for _ in range(batches):
        played.request(TRAINING, 10)
        played.forward(20, training=False)


def evaluate_and_save(played):
    played.evaluate()
    played.wait(7)
    in_region(played, "save", 40)


def set_up_between(played):
    """Look at a batch, set up for long, evaluate."""
    played.request(EVALUATION, 5)
    played.wait(5000)
    in_region(played, "save", 3)
    played.wait(2)
    played.evaluate()


BESIDE_STEPS = {
    "loader": (Played.evaluate, 50, 0),
    "no loader": (lambda played: played.forward(20, training=False), 20, 0),
    "checkpoint": (lambda played: in_region(played, "save", 40), 0, 40),
    "both": (evaluate_and_save, 50, 40),
    "set-up": (set_up_between, 50, 3),
    "training source": (lambda played: read_training(played, 3), 90, 0),
}


@pytest.mark.parametrize(
    ("before", "kind", "source"),
    [
        *product([True, False], BESIDE_STEPS, [TRAINING]),
        *product([True], ["no loader", "checkpoint"], [None]),
        *product([False], BESIDE_STEPS, [None]),
    ],
)
def test_evaluations_and_checkpoints_in_no_step_have_their_time(played, before, kind, source):
    work, evaluation, save = BESIDE_STEPS[kind]
    if before:
        work(played)
        played.wait(500)
    train(played, 3, source)
    if not before:
        played.wait(500)
        work(played)
        played.wait(500)
    (line,) = played.lines("outside")
    assert line["before"] is before
    assert (line["save_ns"] // MS, line["evaluation_ns"] // MS) == (save, pytest.approx(evaluation, abs=6))
    assert [step["duration_ns"] // MS for step in played.steps()] == [55 if source is None else 65] * 3


@pytest.mark.parametrize("source", [TRAINING, EVALUATION])
def test_a_look_at_a_batch_is_no_evaluation(played, source):
    played.request(EVALUATION, 10)
    played.wait(500)
    train(played, 3)
    played.request(source, 10)
    assert played.lines("outside") == []


def test_a_batch_read_without_gradient_before_every_step_is_no_evaluation_behind_the_last(played):
    for _ in range(5):
        read_training(played, 1)
        train(played, 1)
    read_training(played, 1)
    assert not [line for line in played.lines("outside") if not line["before"]]


def test_accumulation_is_one_step_of_several_micro_steps(played):
    for _ in range(2):
        for _ in range(4):
            played.request(TRAINING, 10)
            played.forward(20)
            played.backward(30)
        played.update(5)
    assert [(step["micro_steps"], milliseconds(step["regions"])["input"]) for step in played.steps()] == [(4, 40)] * 2


def test_without_a_loader_a_step_ends_with_its_update_and_begins_with_the_evaluation_after_it(played):
    for step in range(3):
        if step == 1:
            played.forward(20, training=False)
            played.wait(10)
            played.forward(20, training=False)
        for _ in range(2):
            played.forward(20)
            played.wait(7)
            played.backward(30)
        played.update(5)
    steps = played.steps()
    assert [step["duration_ns"] // MS for step in steps] == [119, 169, 119]
    assert [step["number"] for step in steps if "apart" in step] == [1]
    assert milliseconds(steps[1]["gaps"]) == {"forward>backward": 14}
    assert all(step["flags"] == ["no_loader"] for step in steps)


def test_a_second_network_between_two_updates_of_a_step_is_not_apart(played):
    for _ in range(3):
        played.request(TRAINING, 10)
        for optimizer in (0, 1):
            played.forward(5, training=False)
            played.forward(20)
            played.backward(30)
            played.update(5, optimizer)
    steps = played.steps()
    assert [step["optimizers"] for step in steps] == [[0, 1]] * 3
    assert not any("apart" in step for step in steps)
    assert milliseconds(steps[1]["regions"])["nograd"] == 10


def test_two_loaders_of_one_step_are_both_its_input(played):
    for step in range(4):
        played.request(TRAINING, 10)
        played.request(SECOND, 20)
        played.forward(20)
        played.backward(30)
        played.update(5)
        if step == 2:
            played.evaluate()
    steps = played.steps()
    # Of the first step only the last request is known to be its own.
    assert [milliseconds(step["regions"])["input"] for step in steps] == [20, 30, 30, 30]
    assert [step["number"] for step in steps if "apart" in step] == [2]


def test_a_forward_without_gradient_after_the_request_is_the_steps_own(played):
    for _ in range(3):
        played.request(TRAINING, 10)
        played.forward(15, training=False)
        played.forward(20)
        played.backward(30)
        played.update(5)
    steps = played.steps()
    assert [milliseconds(step["regions"])["nograd"] for step in steps] == [15] * 3
    assert not any("apart" in step for step in steps)


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("batches", [1, 3])
def test_an_evaluation_that_reads_the_training_source_is_apart(played, after, batches):
    for step in range(4):
        played.request(TRAINING, 10)
        played.forward(20)
        played.backward(30)
        played.update(5)
        if step == after:
            played.request(TRAINING, 1, "epoch")
            for _ in range(batches):
                played.request(TRAINING, 10)
                played.forward(20, training=False)
            played.request(TRAINING, 1, "epoch")
    steps = played.steps()
    assert [step["number"] for step in steps if "apart" in step] == [after]
    assert (steps[after]["apart"]["end_ns"] - steps[after]["apart"]["begin_ns"]) // MS == 30 * batches
    assert milliseconds(steps[3]["regions"]) == {"input": 10, "forward": 20, "backward": 30, "update": 5}


def test_an_evaluation_of_the_training_source_before_the_first_step_is_in_none(played):
    for _ in range(5):
        played.request(TRAINING, 10)
        played.forward(20, training=False)
    for _ in range(3):
        played.request(TRAINING, 10)
        played.forward(20)
        played.backward(30)
        played.update(5)
    assert [step["duration_ns"] // MS for step in played.steps()] == [65] * 3


def test_a_batch_that_is_read_without_gradient_before_every_step_is_its_own(played):
    for _ in range(5):
        played.request(TRAINING, 10)
        played.forward(20, training=False)
        played.request(TRAINING, 10)
        played.forward(20)
        played.backward(30)
        played.update(5)
    steps = played.steps()
    assert not any("apart" in step for step in steps[2:])
    assert [milliseconds(step["regions"])["input"] for step in steps[2:]] == [20] * 3


def test_a_loss_behind_an_evaluation_is_a_part_of_that(played):
    for step in range(3):
        played.request(TRAINING, 10)
        played.forward(20)
        played.backward(30)
        played.update(5)
        if step == 1:
            played.request(EVALUATION, 5)
            played.forward(20, training=False)
            name = played.recorder.forward_begin(training=True, trainable=False)
            played.wait(3)
            played.recorder.forward_end(name)
    steps = played.steps()
    assert len(steps) == 3
    assert (steps[1]["apart"]["end_ns"] - steps[1]["apart"]["begin_ns"]) // MS == 28


def by_hand(played, steps, evaluated=None, loader=None):
    played.recorder.by_hand = True
    for step in range(steps):
        if loader is not None:
            played.request(loader, 10)
        played.forward(20)
        played.backward(30)
        played.wait(5)
        if step == evaluated:
            played.forward(20, training=False)
            played.wait(2)
            played.forward(20, training=False)


def test_without_an_optimizer_a_step_ends_where_the_next_forward_begins(played):
    by_hand(played, 4)
    steps = played.steps()
    assert [step["duration_ns"] // MS for step in steps] == [55, 55, 55, 50]
    assert milliseconds(steps[1]["gaps"]) == {"backward>forward": 5}


def test_without_an_optimizer_a_step_with_a_loader_ends_with_the_next_request(played):
    by_hand(played, 4, loader=TRAINING)
    assert [step["duration_ns"] // MS for step in played.steps()] == [65, 65, 65, 60]


def test_without_an_optimizer_an_evaluation_is_apart(played):
    by_hand(played, 4, evaluated=1)
    steps = played.steps()
    assert [(step["duration_ns"] // MS, "apart" in step) for step in steps] == [
        (55, False),
        (97, True),
        (55, False),
        (50, False),
    ]


def test_two_backward_passes_of_one_forward_are_one_step_without_an_optimizer(played):
    played.recorder.by_hand = True
    for _ in range(3):
        played.forward(20)
        played.backward(30)
        played.backward(10)
    assert [step["micro_steps"] for step in played.steps()] == [2, 2, 2]


def test_without_an_optimizer_and_modules_each_backward_pass_is_a_step(played):
    played.recorder.by_hand = True
    for _ in range(4):
        played.wait(20)
        played.backward(30)
    assert [step["duration_ns"] // MS for step in played.steps()] == [30, 50, 50, 50]


def test_a_long_accumulation_is_one_step_where_nothing_was_compiled(played):
    played.recorder.compiles = lambda: False
    for _ in range(2):
        for _ in range(40):
            played.request(TRAINING, 10)
            played.forward(20)
            played.backward(30)
        played.update(5)
    assert [step["micro_steps"] for step in played.steps()] == [40, 40]


def test_evaluation_after_a_request_that_came_early_is_apart_in_the_step_of_that_request(played):
    played.request(TRAINING, 10)
    for step in range(3):
        played.forward(20)
        played.backward(30)
        played.update(5)
        played.request(TRAINING, 10)
        if step == 1:
            played.request(TRAINING, 1, "epoch")
    assert [step["duration_ns"] // MS for step in played.steps()] == [65, 65, 55 + 11]


def test_forward_and_backward_inside_of_the_optimizers_step_open_a_step(played):
    for _ in range(3):
        played.request(TRAINING, 10)
        played.recorder.update_begin()
        played.forward(20)
        played.backward(30)
        played.wait(5)
        played.recorder.update_end(0)
    steps = played.steps()
    assert len(steps) == 3
    assert milliseconds(steps[1]["regions"]) == {"input": 10, "forward": 20, "backward": 30, "update": 5}


def test_updates_in_compiled_code_make_steps_that_are_counted_by_requests(played):
    for _ in range(12):
        played.request(TRAINING, 10)
        played.forward(20)
        played.backward(30)
        played.wait(5)
    steps = played.steps()
    assert [step["micro_steps"] for step in steps] == [8, 1, 1, 1]
    assert all("blind" in step["flags"] for step in steps[1:])


def test_a_long_evaluation_needs_no_more_memory_than_its_sums(played):
    for step in range(2):
        played.request(TRAINING, 10)
        played.forward(20)
        played.backward(30)
        played.update(5)
        if step == 0:
            played.evaluate(10_000)
            assert len(played.recorder.ledger.waiting) <= account.WAITING
    (first, _) = played.steps()
    assert (first["apart"]["end_ns"] - first["apart"]["begin_ns"]) // MS == 250_001


def test_a_region_inside_of_another_is_not_counted_twice(played):
    played.request(TRAINING, 10)
    played.forward(20)
    played.recorder.backward_begin()
    played.wait(10)
    begin = played.recorder.enter("collective")
    played.wait(7)
    played.recorder.leave("collective")
    played.recorder.collective("allreduce", 100, begin, played.at)
    played.recorder.backward_end(synchronised=True)
    played.update(5)
    (step,) = played.steps()
    assert milliseconds(step["regions"])["backward"] == 10
    assert step["collectives"] == {"backward:allreduce": [1, 100, 7 * MS]}


def test_a_fault_marks_its_step_and_the_next_is_whole(played):
    for step in range(3):
        played.request(TRAINING, 10)
        if step == 1:
            played.recorder.forward_begin(training=True)
            played.recorder.faulted()
        else:
            played.forward(20)
        played.backward(30)
        played.update(5)
    played.recorder.end()
    (path,) = played.folder.glob("*.jsonl")
    steps = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "step"]
    assert [step.get("flags") for step in steps] == [None, ["fault"], None]
    assert milliseconds(steps[2]["regions"]) == {"input": 10, "forward": 20, "backward": 30, "update": 5}


def test_a_process_that_never_trains_leaves_no_file(played):
    played.evaluate()
    played.recorder.end()
    assert not list(played.folder.iterdir())


def trained(played, source=TRAINING):
    played.request(source, 10)
    played.forward(20)
    played.backward(30)
    played.update(5)


def read_by_its_own_loader(played):
    for _ in range(3):
        played.request(TRAINING, 10)
        played.forward(20)
    played.request(TRAINING, 1, "epoch")


def read_one_batch(played):
    played.request(SECOND, 10)
    played.forward(20)
    played.wait(30)
    played.request(SECOND, 1, "epoch")


def read_ahead(played):
    played.request(TRAINING, 10)
    for region in ("input", "input", "epoch"):
        played.request(TRAINING, 10, region)
        played.forward(20)


def read_by_two_modules(played):
    for _ in range(3):
        played.request(TRAINING, 10)
        played.forward(10)
        played.forward(10)


def read_behind_one_without_gradient(played):
    played.evaluate()
    read_by_its_own_loader(played)


VALIDATIONS = (
    read_by_its_own_loader,
    read_one_batch,
    read_ahead,
    read_by_two_modules,
    read_behind_one_without_gradient,
)


@pytest.mark.parametrize("validate", VALIDATIONS, ids=lambda validate: validate.__name__)
def test_a_validation_with_gradients_is_apart_whatever_loader_it_reads(played, validate):
    taken = []
    for step in range(9):
        trained(played)
        if step % 3 == 2:
            begin = played.at
            validate(played)
            taken.append((played.at - begin) // MS)
    steps = played.steps()
    assert [step["micro_steps"] for step in steps] == [1] * 9
    assert all(
        step["duration_ns"] // MS - (step["apart"]["end_ns"] - step["apart"]["begin_ns"]) // MS == 65
        for step in steps
        if "apart" in step
    )
    apart = [step["apart"]["end_ns"] - step["apart"]["begin_ns"] for step in steps[:8] if "apart" in step]
    assert sum(apart) // MS == sum(taken[:2])
    outside = played.lines("outside")
    assert [line["evaluation_ns"] > 0 for line in outside if not line["before"]] == [True]


def test_batches_that_one_loss_is_over_are_the_steps_own(played):
    for _ in range(4):
        for _ in range(3):
            played.request(TRAINING, 10)
            played.forward(20)
        played.backward(30)
        played.update(5)
    steps = played.steps()
    assert not any("apart" in step for step in steps)
    assert milliseconds(steps[2]["regions"]) == {"input": 30, "forward": 60, "backward": 30, "update": 5}
