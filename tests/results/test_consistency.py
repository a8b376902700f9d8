"""A record that is not a launch of its trial is set aside with the reason, whatever its kind; others are used."""

import json
from dataclasses import replace

import pytest
from launch_phases import launch_of
from simulated import ENDED, a_failure, a_launch, a_store, a_training, a_trial, a_worker, an_epoch

from steptime.analysis.summary import summarise
from steptime.analysis.trial_progress import progress_of_trials
from steptime.catalog.cluster import cluster_for
from steptime.errors import StoreError
from steptime.results.clock_marks import StoredMarks
from steptime.results.consistency import SetAside, counted, misfit, sentences
from steptime.results.jsonlines import signed
from steptime.results.loader_records import LoaderLaunch, LoaderStretch, WorkerLoading
from steptime.results.net_records import NetLaunch, NetSetting, Visit, WorkerVisits
from steptime.results.record_kinds import ABLATION, LOADING, TRAINING
from steptime.results.store import Store
from steptime.study.training import Training

PAIR = a_trial(strategy="allreduce", workers=2)
TRAINED = a_trial(strategy="allreduce", workers=2, training=Training(epochs=2))
CLUSTER = cluster_for(workers=2, own_servers=0, bandwidth_bits_per_s=1e9)
ON_HOSTS = a_trial(strategy="allreduce", workers=2, hosts=2, launcher="emulated", cluster=CLUSTER)
MESSAGES = NetSetting(
    back_end="gloo", framework="pytorch", strategy="allreduce", options={}, device="cpu", workers=2,
    operations=("allreduce",), sizes=(1024, 4096),
)  # fmt: skip
ENDS = [100.1, 100.2, 100.3]


def timed(**changes):
    """Return a launch of two workers; ``changes`` are those of worker 1."""
    first, second = (a_worker(ENDS, rank, origin_s=100.0) for rank in range(2))
    return a_launch(PAIR, workers=[first, replace(second, **changes)], wall_s=2.0)


MARKS = StoredMarks([(0, 0.0, False), (1, 0.0, True), (4, 0.301, True), (5, 0.302, True)], 100.301)


def twice(factor):
    """Return a launch whose workers have so many times the ends."""
    ends = [100.0 + 0.3 * (place + 1) / round(3 * factor) for place in range(round(3 * factor))]
    workers = [replace(a_worker(ends, rank, origin_s=100.0), kernel_marks=MARKS) for rank in range(2)]
    return a_launch(PAIR, workers=workers, wall_s=2.0)


def apart(**changes):
    launch = launch_of(0)
    first, second = (
        replace(each, clocks=[{"at_s": at_s, "offset_s": 0.0, "rtt_s": 0.0} for at_s in (10.0, 12.0)])
        for each in launch.workers
    )
    return replace(launch, trial=PAIR.id, workers=[first, replace(second, **changes)])


def loading(ends=(1.0, 1.1), rank=1, host="here", **facts):
    stretches = [LoaderStretch("first", 0.9, [0.95], {"wall_s": 0.1})]
    first = WorkerLoading(0, "here", [*stretches, LoaderStretch("later", 0.96, [1.0, 1.1], {})], 9, 1, {})
    later = LoaderStretch("later", 0.96, list(ends), {})
    return LoaderLaunch(
        trial=PAIR.id, launch=0, **ENDED, workers=[first, WorkerLoading(rank, host, [*stretches, later], 9, 1, facts)]
    )


def trained(workers=2, **changes):
    epochs = [[an_epoch() for _ in range(workers)] for _ in range(2)]
    return a_training(TRAINED, **{"epochs": epochs, **changes})


def messages(ends=(3.0, 3.1), rank=1, host="here"):
    visits = [Visit("allreduce", 1024, 0, [1.0, 1.1]), Visit("allreduce", 4096, 0, [3.0, 3.1])]
    others = [visits[0], Visit("allreduce", 4096, 0, list(ends))]
    facts = {"framework_version": "1"}
    workers = [WorkerVisits(0, "here", visits, 1, 0, facts), WorkerVisits(rank, host, others, 1, 0, facts)]
    return NetLaunch(**ENDED, launch=0, setting=MESSAGES, commands=[], workers=workers)


CASES = {
    "a rank twice": (
        timed(rank=0),
        PAIR,
        "workers",
        "records of the ranks 0, 0, and needs one of each rank from 0 to 1",
    ),
    "a rank too many": (timed(rank=2), PAIR, "workers", "the ranks 0, 2"),
    "no rank": (a_launch(PAIR, workers=[]), PAIR, "workers", "no record of a worker"),
    "another host": (timed(host="b"), PAIR, "host", "worker 1 ran on b, not on here as worker 0"),
    "64 threads": (timed(facts={"threads": 64}), PAIR, "facts", "worker 1 computed with 64 threads, not 1"),
    "a GPU": (timed(facts={"device": "NVIDIA H100"}), PAIR, "facts", "device cuda, not cpu"),
    "no GPU": (
        timed(facts={"device": "AVX2"}),
        PAIR.model_copy(update={"device": "cuda"}),
        "facts",
        "worker 1 computed with device cpu, not cuda",
    ),
    "fp16": (timed(facts={"precision": "fp16"}), PAIR, "facts", "precision fp16, not fp32"),
    "autocast": (timed(facts={"autocast": "bfloat16"}), PAIR, "facts", "precision bf16, not fp32"),
    "a variable": (
        replace(timed(), environment_variables={}),
        PAIR.model_copy(update={"environment_variables": {"KMP_BLOCKTIME": "0"}}),
        "facts",
        "KMP_BLOCKTIME was None in its environment, not '0'",
    ),
    "a step less": (
        timed(ends_s=ENDS[:2]),
        PAIR,
        "steps",
        "the numbers of steps of worker 1 are 0, 2, and of worker 0 0, 3",
    ),
    "an end before the one before": (
        timed(ends_s=[100.1, 100.05, 100.3]),
        PAIR,
        "clock",
        "worker 1 went back by 50 ms",
    ),
    "an end before the first step": (timed(origin_s=100.15), PAIR, "clock", "went back by 50 ms"),
    "an end after 4,000 s": (timed(ends_s=[*ENDS[:2], 4100.0]), PAIR, "duration", "1 h 6 min in a launch of 2 s"),
    "longer than the seconds that were counted": (
        a_launch(PAIR, workers=[replace(each, usage={"wall_s": 0.1}) for each in timed().workers], wall_s=2.0),
        PAIR,
        "duration",
        "measured 300 ms where it counted 100 ms",
    ),
    "two machines of one name": (
        timed(origin_s=9e5, ends_s=[9e5 + end for end in (0.1, 0.2, 0.3)]),
        PAIR,
        "host",
        "two machines have this name",
    ),
    "ablation: a rank twice": (apart(rank=0), PAIR, "workers", "the ranks 0, 0"),
    "ablation: longer than the launch": (
        apart(stages={"step": [[61.0]]}),
        PAIR,
        "duration",
        "measured 1 min 1 s in a launch of 1 min",
    ),
    "ablation: a mark from another day": (
        apart(marked=[[11.0, 9e4]]),
        PAIR,
        "steps",
        "of worker 1 are 1, and of worker 0 0",
    ),
    "loader: a rank twice": (loading(rank=0), PAIR, "workers", "the ranks 0, 0"),
    "loader: backwards": (loading((1.1, 1.0)), PAIR, "clock", "went back by 100 ms"),
    "a clock that notes the call": (
        timed(usage={"wall_s": 1.9}),
        PAIR,
        "unfilled",
        "its steps took 300 ms by their clock, and a process counted 1.9 s for them",
    ),
    "ends of another clock": (
        timed(ends_s=[100.1, 100.15, 100.2], kernel_marks=replace(MARKS, settled_s=100.201)),
        PAIR,
        "kernel",
        "the clock of worker 1 counts 201 ms where the kernel counts 301 ms",
    ),
    "twice as many ends as steps": (twice(2), PAIR, "kernel", "the clock of worker 0 has 6 ends of steps, and took 3"),
    "half as many ends as steps": (twice(0.5), PAIR, "kernel", "the clock of worker 0 has 2 ends of steps, and took 3"),
    "a last step that was over later": (
        timed(
            kernel_marks=replace(MARKS, settled_s=100.45, marks=[*MARKS.marks[:2], (4, 0.44, True), (5, 0.451, True)])
        ),
        PAIR,
        "kernel",
        "the clock of worker 1 ends the last step 150 ms before it was over",
    ),
    "loader: too late": (loading((1.0, 99.0)), PAIR, "duration", "in a launch of 1 min"),
    "loader: threads": (loading(threads=3), PAIR, "facts", "3 threads, not 1"),
    "loader: another host": (loading(host="b"), PAIR, "host", "worker 1 ran on b"),
    "training: a worker missing": (trained(1), TRAINED, "workers", "the ranks 0, and needs one of each"),
    "training: a slowed clock": (
        trained(epochs=[[an_epoch(), an_epoch(trained_s=0.7, kernel_s=(1.0, 1.001))]], wall_s=9.0),
        TRAINED,
        "kernel",
        "the clock of worker 1 counts 700 ms in an epoch where the kernel counts 1 s",
    ),
    "training: a hurried clock": (
        trained(epochs=[[an_epoch(), an_epoch(kernel_s=(0.9, 0.95))]], wall_s=9.0),
        TRAINED,
        "kernel",
        "counts 1 s in an epoch where the kernel counts 950 ms",
    ),
    "training: another seed": (trained(seed=7), TRAINED, "facts", "seed: 7, not 0"),
    "training: longer than the launch": (trained(wall_s=1.5), TRAINED, "duration", "in a launch of 1.5 s"),
    "training: a GPU": (trained(facts={"device": "gpu(0)"}), TRAINED, "facts", "device cuda, not cpu"),
    "messages: a rank twice": (messages(rank=0), MESSAGES, "workers", "the ranks 0, 0"),
    "messages: backwards": (messages((0.5, 0.6)), MESSAGES, "clock", "went back by 600 ms"),
    "messages: too late": (messages((3.0, 90.0)), MESSAGES, "duration", "in a launch of 1 min"),
    "messages: another host": (messages(host="b"), MESSAGES, "host", "worker 1 ran on b"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_record_that_does_not_fit_says_why(case):
    record, configuration, reason, message = CASES[case]
    found = misfit(record, configuration)

    assert found is not None
    assert found.reason == reason
    assert message in found.message


@pytest.mark.parametrize(
    ("record", "configuration"),
    [
        pytest.param(timed(), PAIR, id="nothing but steps"),
        pytest.param(timed(facts={"threads": None, "device": "Lichee Pi"}), PAIR, id="facts that say nothing"),
        pytest.param(
            timed(facts={"threads": 2}), PAIR.model_copy(update={"threads": 4}), id="fewer cores than threads"
        ),
        pytest.param(
            timed(facts={"device": "cpu(0)", "precision": "fp32", "autocast": None}), PAIR, id="facts that fit"
        ),
        pytest.param(
            timed(facts={"autocast": None}), PAIR.model_copy(update={"precision": "bf16"}), id="bf16 without autocast"
        ),
        pytest.param(
            a_launch(
                PAIR,
                workers=[replace(each, usage={"wall_s": 0.31 - 0.3 * each.rank}) for each in timed().workers],
                wall_s=2.0,
            ),
            PAIR,
            id="a worker that another process computes for",
        ),
        pytest.param(timed(origin_s=100.05, ends_s=[100.09, 100.09, 100.5]), PAIR, id="workers at different times"),
        pytest.param(replace(timed(), environment_variables=None), PAIR, id="variables were not kept"),
        pytest.param(timed(host="b"), a_trial(strategy="allreduce", workers=2, hosts=2), id="hosts of the launcher"),
        pytest.param(a_failure(PAIR), PAIR, id="a failed launch"),
        pytest.param(apart(), PAIR, id="ablation"),
        pytest.param(loading(), PAIR, id="loader"),
        pytest.param(loading((1.0, 1.05, 1.1)), PAIR, id="a loader that took more batches in the same time"),
        pytest.param(
            timed(facts={"threads": 2}), PAIR.model_copy(update={"launcher": "inline"}), id="threads of steptime itself"
        ),
        pytest.param(trained(), TRAINED, id="training"),
        pytest.param(trained(resumed_at=1, wall_s=1.2), TRAINED, id="a training that went on"),
        pytest.param(messages(), MESSAGES, id="messages"),
    ],
)
def test_a_record_that_fits_is_used(record, configuration):
    assert misfit(record, configuration) is None


def test_emulated_hosts_are_those_that_the_launcher_made():
    hosts = [{"name": f"h{index}", "roles": [f"worker-{index}"]} for index in range(2)]
    workers = [a_worker(ENDS, rank, f"h{rank}", origin_s=100.0) for rank in range(2)]
    launch = a_launch(ON_HOSTS, workers=workers, cluster={"kind": "emulated", "hosts": hosts})
    moved = replace(launch, workers=[workers[0], replace(workers[1], host="h0")])
    assert misfit(launch, ON_HOSTS) is None
    assert misfit(moved, ON_HOSTS).message == "worker 1 ran on h0, not on h1"
    assert "1 hosts" in misfit(replace(launch, cluster={"kind": "emulated", "hosts": hosts[:1]}), ON_HOSTS).message


@pytest.fixture
def store(tmp_path) -> Store:
    """A store of two launches of each of two trials."""
    store = a_store(tmp_path / "results")
    for trial in (a_trial(), PAIR):
        store.add_trial(trial)
        for number in range(2):
            store.append(a_launch(trial, number, [0.1] * 20))
    return store


def records(store: Store, trial=PAIR):
    return store.path / "trials" / trial.id / "records.jsonl"


def test_the_launch_of_another_trial_is_not_used_and_stays_in_its_file(store):
    records(store).write_bytes(records(store, a_trial()).read_bytes())
    assert store.launches(PAIR.id) == []
    assert [(each.line, each.reason) for each in store.set_aside] == [(1, "other_trial"), (2, "other_trial")]
    assert len(records(store).read_text().splitlines()) == 2


def test_the_same_launch_again_counts_once(store):
    records(store).write_bytes(records(store).read_bytes() * 10)
    assert [launch.launch for launch in store.launches(PAIR.id)] == [0, 1]
    assert counted(store.set_aside) == "18 the same launch again"
    assert store.problems[0].endswith(
        "lines 3, 5, 7, 9, 11, 13, 15, 17, 19 were set aside: it is the launch of line 1 again"
    )


@pytest.mark.parametrize("kind", ["ablation", "loader", "training", "net"])
def test_every_kind_of_file_is_read_alike(tmp_path, kind):
    """A line twice, and where there are trials another trial's line: each is set aside."""
    store = a_store(tmp_path / "results")
    store.add_trial(PAIR)
    store.add_trial(TRAINED)
    record, append, read = {
        "ablation": (apart(), store.append, lambda: store.records(ABLATION, PAIR.id)),
        "loader": (loading(), store.append, lambda: store.records(LOADING, PAIR.id)),
        "training": (trained(), store.append, lambda: store.records(TRAINING, TRAINED.id)),
        "net": (messages(), store.append_net, store.net),
    }[kind]
    append(record)
    append(record)
    if kind != "net":
        path = store.path / "trials" / record.trial / f"{kind}.jsonl"
        line = json.loads(path.read_text().splitlines()[0])
        del line["checksum"]
        path.write_bytes(path.read_bytes() + signed({**line, "trial": "another"}))
    assert read() == [record]
    assert [each.reason for each in store.set_aside] == ["repeated", *(["other_trial"] if kind != "net" else [])]


def test_the_summary_counts_what_was_set_aside_and_flags_its_trial(store):
    records(store).write_bytes(records(store).read_bytes() * 2)
    found = summarise(store)
    (trial,) = (each for each in found.trials if each.id == PAIR.id)
    assert (trial.launches, trial.flags) == (2, ["records set aside: 2 the same launch again"])
    assert [each.line for each in found.set_aside] == [3, 4]


def test_a_trial_of_which_nothing_is_left_says_so(store):
    records(store).write_bytes(records(store, a_trial()).read_bytes())
    (trial,) = (each for each in summarise(store).trials if each.id == PAIR.id)
    assert trial.status == "failed"
    assert trial.reason == "no launch is left: 2 of another trial; rerun the study to measure again"
    store.require_launches()


def test_a_folder_of_which_nothing_is_left_is_an_error(store):
    one, other = records(store), records(store, a_trial())
    one_text, other_text = one.read_text(), other.read_text()
    one.write_text(other_text)
    other.write_text(one_text)
    progress_of_trials(store)
    with pytest.raises(StoreError, match=r"no launch of .* is left: its records were set aside \(4 of another trial\)"):
        store.require_launches()


def test_lines_with_the_same_mistake_share_a_sentence():
    found = [SetAside(file="f", line=line, reason="clock", message="x") for line in (1, 2, 3, 7)]
    assert sentences(found) == ["f, lines 1 to 3, 7 were set aside: x"]
    assert sentences(found[:1]) == ["f, line 1 was set aside: x"]
