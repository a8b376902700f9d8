"""Ranks that exchange no gradients are the first finding, by its cause; those that exchange, or may, are not."""

import pytest
from stored_processes import BEGIN, MS, ddp_steps, found_in, process_lines, sentences_of, step, write

from steptime.diagnosis.rules import script_findings

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}
GRADIENTS = {"kind": "gradients", "bytes": 4096, "ready": [[4096, 5]], "backward_ns": 9}


def lonely_steps(synchronised=None, **more):
    """Steps of a process that makes no collective."""
    found = []
    for number in range(30):
        begin = BEGIN + number * 40 * MS
        passes = [[begin + 25 * MS, begin + 33 * MS, begin + 33 * MS, synchronised]]
        regions = {"input": 20.0, "forward": 5.0, "backward": 8.0, "update": 7.0}
        found.append(step(number, begin, regions, backwards=passes, **more))
    return found


def weights(value, number=16, **more):
    return {"kind": "weights", "step": number, "parameters": 4, "sums": [value, 1.0], **more}


def job(folder, of_rank, world=2, **more):
    """Write two processes, of which ``of_rank`` returns steps and further lines, and return what is found in them."""
    processes = []
    for rank in range(2):
        steps, lines = of_rank(rank)
        lines = [GRADIENTS, *lines]
        environment = more.get("environment", lambda rank: {**TORCHRUN, "RANK": str(rank)})(rank)
        processes.append(process_lines(rank, world, steps, lines=lines, environment=environment))
    return found_in(write(folder, *processes), 60_000.0)


CAUSES = {
    "DDP forgotten": ([], 2, "no network is wrapped in DistributedDataParallel"),
    "DDP bypassed": ([("data_parallel", 1), ("bypassed", 16)], 2, "go around DistributedDataParallel"),
    "no process group": ([], 1, "no process group was made"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_separate_models_are_the_first_finding_by_their_cause(tmp_path, name):
    more, world, cause = CAUSES[name]
    run = job(tmp_path, lambda rank: (lonely_steps(), [weights(float(rank), **dict(more))]), world)
    assert run.findings[0].kind == "separate_models"
    assert "the ranks exchange nothing: 2 separate models, whose weights differ" in run.findings[0].sentence
    assert cause in run.findings[0].sentence


def test_no_sync_in_every_pass_is_a_cause(tmp_path):
    run = job(tmp_path, lambda rank: (lonely_steps(synchronised=False), [weights(float(rank), data_parallel=1)]))
    assert "no_sync() holds in every backward pass" in sentences_of(run)["separate_models"]


@pytest.mark.parametrize("launcher", ["PMI", "OMPI_COMM_WORLD"])
def test_accelerate_below_mpiexec_is_named(tmp_path, launcher):
    run = job(
        tmp_path,
        lambda rank: (lonely_steps(), [weights(float(rank), joining=["accelerate"])]),
        world=1,
        environment=lambda rank: {f"{launcher}_RANK": str(rank), f"{launcher}_SIZE": "2"},
    )
    assert "Accelerator(cpu=True)" in sentences_of(run)["separate_models"]


def test_ranks_that_a_framework_numbers_as_alone_are_joined_by_their_launcher(tmp_path):
    place = {"kind": "rank", "rank": 0, "world": 1, "by": "torch.distributed/gloo"}
    run = job(tmp_path, lambda rank: (lonely_steps(), [place, weights(float(rank))]), world=1)
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert "each process trains as if alone" in sentences_of(run)["separate_models"]


def test_separate_models_of_equal_weights_are_separate(tmp_path):
    run = job(tmp_path, lambda _: (lonely_steps(), [weights(3.0)]))
    assert "of equal weights after step 16" in sentences_of(run)["separate_models"]


def test_a_reduced_loss_is_no_exchange_of_gradients(tmp_path):
    calls = {"collectives": {"none:allreduce": [1, 4, MS], "none:wait": [1, 0, MS]}}
    run = job(tmp_path, lambda rank: (lonely_steps(**calls), [weights(float(rank))]))
    assert "exchange no gradients: 2 separate models" in sentences_of(run)["separate_models"]


EXCHANGING = {
    "gradients in a collective": ({"collectives": {"none:allreduce": [4, 4096, MS]}}, {}),
    "waits for what another thread asked": ({"collectives": {"none:wait": [4, 0, MS]}}, {}),
    "a way that is not looked into": ({}, {"channels": ["mpi4py"]}),
    "shared memory": ({}, {"shared": True}),
    "DDP": ({"synchronised": True}, {"data_parallel": 1}),
}


@pytest.mark.parametrize("name", EXCHANGING)
def test_ranks_that_exchange_or_may_are_no_separate_models(tmp_path, name):
    steps, line = EXCHANGING[name]
    run = job(tmp_path, lambda _: (lonely_steps(**steps), [weights(3.0, **line)]))
    assert "separate_models" not in sentences_of(run)


@pytest.mark.parametrize("channel", ["mpi4py", "torch.compile", "another thread"])
def test_weights_that_differ_are_told_where_an_exchange_may_be_hidden(tmp_path, channel):
    run = job(tmp_path, lambda rank: (lonely_steps(), [weights(float(rank), channels=[channel])]))
    assert "separate_models" not in sentences_of(run)
    assert f"({channel} could hide one)" in sentences_of(run)["diverged_weights"]


def test_workers_of_a_parameter_server_are_no_separate_models(tmp_path):
    channels = {"channels": ["torch.distributed.rpc"]}
    run = job(tmp_path, lambda rank: (lonely_steps(), [weights(float(rank), **channels)]), world=1)
    assert not {"separate_models", "diverged_weights"} & sentences_of(run).keys()


def test_separate_models_get_no_advice_about_time(tmp_path):
    run = job(tmp_path, lambda rank: (lonely_steps(), [weights(float(rank))]))
    (advice,) = script_findings(run)
    assert advice.rule == "own_separate"
    assert advice.gain.value is None


def test_ddp_whose_weights_differ_is_found(tmp_path):
    processes = [
        process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 0.0]), lines=[weights(1.0 + rank)]) for rank in range(2)
    ]
    run = found_in(write(tmp_path, *processes))
    assert "weights differ after step 16, although DDP" in sentences_of(run)["diverged_weights"]


def test_weights_are_compared_behind_the_same_step(tmp_path):
    lines = [[weights(1.0, 8), weights(2.0, 16)], [weights(1.0, 8)]]
    processes = [process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 0.0]), lines=lines[rank]) for rank in range(2)]
    assert "diverged_weights" not in sentences_of(found_in(write(tmp_path, *processes)))


def test_one_process_trains_no_separate_models(tmp_path):
    lines = process_lines(0, 1, lonely_steps(), lines=[GRADIENTS, weights(1.0)], environment=TORCHRUN)
    assert "separate_models" not in sentences_of(found_in(write(tmp_path, lines)))
