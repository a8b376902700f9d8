"""Training until it is over: epochs, a target that is reached early, and a training that goes on to the bit."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

from steptime.catalog.optimizer import Optimizer
from steptime.catalog.workloads.layers import Network
from steptime.execution.jobs import TrainingPlan, training_job
from steptime.results.accuracy_records import worker_epoch
from steptime.study.training import RateSchedule, Training, full_parameters
from steptime.study.trial import Trial
from steptime.worker import training
from steptime.worker.main import run_process

SAMPLES, BATCH = 60, 10


def perceptron():
    net = Network((1, 4, 4))
    net.linear("out", net.batch_norm("norm", net.linear("hidden", net.flatten("flat", net.input), 8)), 3)
    return net.finish("tiny", classes=3)


@pytest.fixture
def arrays(tmp_path):
    stream = np.random.RandomState(0)
    labels = np.arange(SAMPLES) % 3
    images = (stream.randint(0, 60, (SAMPLES, 1, 4, 4)) + 60 * labels.reshape(-1, 1, 1, 1)).astype(np.uint8)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    return {
        "form": "arrays",
        "path": str(tmp_path / "data.npz"),
        "samples": SAMPLES,
        "transform": {"mean": [0.5], "std": [0.5]},
    }


@pytest.fixture
def train(tmp_path, arrays):
    """Return the epochs' records of one worker of the reference."""

    def train(folder, *, schedule="constant", first_epoch=0, checkpoint=None, rate=0.1, **chosen):
        trial = Trial(
            framework="reference",
            strategy="single",
            workload="tiny",
            input_shape=(1, 4, 4),
            classes=3,
            dataset="digits",
            loader="native",
            device="cpu",
            precision="fp32",
            workers=1,
            batch_per_worker=BATCH,
            optimizer=Optimizer(name=chosen.pop("name", "sgd"), learning_rate=rate),
            training=Training(
                epochs=chosen.pop("epochs", 4),
                rate_schedule=RateSchedule(name=schedule, parameters=full_parameters(schedule, {})),
                **chosen,
            ),
        )
        plan = TrainingPlan(0, SAMPLES // BATCH, arrays, checkpoint, first_epoch)
        loader = {"kind": "native", "processes": 0, "dataset": arrays}
        job = training_job(trial, perceptron(), loader, plan)
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "job.json"
        path.write_text(json.dumps(job))

        assert run_process(str(path), {"STEPTIME_WORKERS": "1"}) == 0

        lines = (tmp_path / folder / "worker-0.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["kind"] == "epoch"]

    return train


def what_was_learned(epochs):
    return [(each["epoch"], each["correct"], each["loss_sum"], each["learning_rate"]) for each in epochs]


def test_every_epoch_has_a_record_with_all_samples_counted(train):
    epochs = train("run")

    assert [each["epoch"] for each in epochs] == [0, 1, 2, 3]
    assert {each["counted"] for each in epochs} == {SAMPLES}


@pytest.mark.parametrize("name", ["sgd", "nesterov", "adam", "adamw", "lars", "lamb"])
def test_a_training_that_goes_on_ends_in_the_same_bits(train, tmp_path, name):
    whole = train("whole", name=name, schedule="cosine")
    kept = tmp_path / "checkpoint"
    first = train("first", name=name, schedule="cosine", checkpoint=kept, target_accuracy=1e-9)
    second = train("second", name=name, schedule="cosine", checkpoint=kept, first_epoch=1)

    assert len(first) == 1
    assert what_was_learned(first + second) == what_was_learned(whole)


def test_a_target_that_is_reached_ends_the_training(train):
    whole = train("whole", epochs=8)
    target = whole[1]["correct"] / SAMPLES

    early = train("early", epochs=8, target_accuracy=target)

    assert len(early) == next(number for number, each in enumerate(whole, 1) if each["correct"] / SAMPLES >= target)


def test_a_wrong_learning_rate_is_seen_in_the_loss(train):
    right, wrong = train("right", rate=0.1), train("wrong", rate=0.05)

    assert right[-1]["loss_sum"] != pytest.approx(wrong[-1]["loss_sum"], rel=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_diverges_ends_at_once(train):
    assert len(train("run", epochs=50, rate=1e30)) < 50


def test_a_training_that_goes_on_without_a_checkpoint_is_refused(train, tmp_path):
    with pytest.raises(AssertionError):
        train("lost", first_epoch=1)
    error = json.loads((tmp_path / "lost" / "worker-0.jsonl").read_text().splitlines()[-1])
    assert error["message"].startswith("first_epoch is 1, but the training has no checkpoint to go on from")


def test_the_kernel_counts_the_seconds_of_epochs_too(train, tmp_path, monkeypatch):
    for epoch in train(tmp_path / "right"):
        assert worker_epoch(epoch).clock_mistake() is None
    real, began = time.monotonic, time.monotonic()
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: began + 100.0 * (real() - began)))
    hurried = [worker_epoch(epoch).clock_mistake() for epoch in train(tmp_path / "hurried")]
    assert all("where the kernel counts" in each for each in hurried)
