"""Stages of a pipeline: the bubble of its schedule by recorded sends and passes, beside the waiting that was seen."""

import json
import os
import subprocess

import pytest
from forked_ranks import FORKED_RANKS
from launching import interpreter_for
from program import PROGRAM
from stored_processes import BEGIN, MS, found_in, process_lines, step, write

SCRIPT = """
import sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
schedule, micro_batches, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
width, rows = 512, 64
part = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU())])
stage = pipelining.PipelineStage(part, rank, world, torch.device("cpu"))
optimizer = torch.optim.SGD(part.parameters(), lr=1e-3)
run = getattr(pipelining, schedule)(stage, micro_batches, loss_fn=nn.functional.mse_loss)
x = torch.randn(rows * micro_batches, width)
for _ in range(steps):
    if rank == 0:
        run.step(x)
    else:
        run.step(target=x, losses=[])
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
STEPS = 20
MICRO_BATCHES = {"ScheduleGPipe": 2, "Schedule1F1B": 8}
"""Of each schedule: with two, both send and receive in the same order."""


def stages_of(kinds, passes=4, steps=40):
    """Return the lines of ranks, each with its calls of a step, which it makes between its passes."""
    processes = []
    for rank, own in enumerate(kinds):
        lines, begin = [], BEGIN
        for number in range(steps):
            calls = [[kind, 4096, begin + (5 + place) * MS, begin + (6 + place) * MS] for place, kind in enumerate(own)]
            end = begin + (6 + len(own)) * MS
            backwards = [
                [end + each * MS, end + (each + 1) * MS, end + (each + 1) * MS, None] for each in range(passes)
            ]
            regions = {"forward": 5.0, "collective": float(len(own)), "backward": float(passes), "update": 2.0}
            counts = {f"none:{kind}": [own.count(kind), 4096, MS] for kind in set(own)}
            more = {"intervals": calls, "collectives": counts, "backwards": backwards, "micro_steps": passes}
            lines.append(step(number, begin, regions, **more))
            begin += lines[-1]["duration_ns"]
        processes.append(process_lines(rank, len(kinds), lines))
    return processes


def pipeline_in(folder, processes):
    """Return the sentence about a pipeline; empty where there is none."""
    run = found_in(write(folder, *processes))
    return next((each.sentence for each in run.findings if each.kind == "pipeline"), "")


FIRST, LAST = ["send"] * 4 + ["recv"] * 4, ["recv"] * 4 + ["send"] * 4
BETWEEN = ["recv", "send"] * 8


@pytest.mark.parametrize(
    ("kinds", "stages", "share"),
    [
        ([FIRST, LAST], 2, "20 %"),
        ([FIRST, BETWEEN, LAST], 3, "33 %"),
        ([FIRST, BETWEEN, BETWEEN, LAST], 4, "43 %"),
        ([FIRST, LAST, FIRST, LAST], 2, "20 %"),
        ([FIRST, FIRST, BETWEEN, BETWEEN, LAST, LAST], 3, "33 %"),
    ],
    ids=["two", "three", "four", "two-pipelines-of-two", "two-pipelines-of-three"],
)
def test_the_bubble_follows_from_stages_and_passes(tmp_path, kinds, stages, share):
    said = pipeline_in(tmp_path, stages_of(kinds))
    assert f"ranks are {stages} stages of a pipeline, with 4 backward passes" in said
    assert f"would wait {share} of it" in said


@pytest.mark.parametrize("passes", [1, 2, 8])
def test_more_micro_batches_leave_less_of_a_bubble(tmp_path, passes):
    said = pipeline_in(tmp_path, stages_of([FIRST, LAST], passes))
    assert f"would wait {100 / (passes + 1):.0f} % of it" in said
    assert f"{100 / (4 * passes + 1):.0f} % with {4 * passes} passes" in said


def test_shapes_that_are_sent_in_a_first_step_do_not_count(tmp_path):
    processes = stages_of([FIRST, BETWEEN, LAST])
    first = next(line for line in processes[0] if line["kind"] == "step")
    first["collectives"]["none:send"] = [6, 4096, MS]
    assert "3 stages" in pipeline_in(tmp_path, processes)


def test_neighbours_that_send_in_one_order_are_no_pipeline(tmp_path):
    assert not pipeline_in(tmp_path, stages_of([FIRST, FIRST]))


def test_one_end_without_another_says_nothing_of_stages(tmp_path):
    assert not pipeline_in(tmp_path, stages_of([FIRST, BETWEEN, BETWEEN]))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """By schedule, what is found in a real pipeline of two processes, which divides a batch into so many."""
    python = interpreter_for("pytorch")
    found = {}
    for schedule, micro_batches in MICRO_BATCHES.items():
        folder = tmp_path_factory.mktemp(schedule)
        (folder / "train.py").write_text(SCRIPT)
        command = [*PROGRAM, "attach", "-o", str(folder / "results"), "--json", "--", str(python), FORKED_RANKS]
        done = subprocess.run(
            [*command, "train.py", schedule, str(micro_batches), str(STEPS)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=400,
            check=True,
        )
        found[schedule] = json.loads(done.stderr.splitlines()[-1])
    return found


def waiting(found):
    """Return the share of a step in which the ranks wait for each other's batches."""
    return next(part["share"] for part in found["parts"] if part["name"] == "exchange")


@pytest.mark.alone
@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("schedule", MICRO_BATCHES)
def test_a_real_pipeline_waits_at_least_as_long_as_its_bubble(real, schedule):
    said = next((each["sentence"] for each in real[schedule]["findings"] if each["kind"] == "pipeline"), "")
    assert f"2 stages of a pipeline, with {MICRO_BATCHES[schedule]} backward passes" in said
    assert waiting(real[schedule]) >= 0.8 / (MICRO_BATCHES[schedule] + 1)


@pytest.mark.alone
@pytest.mark.framework("pytorch")
def test_a_real_pipeline_of_more_micro_batches_waits_for_less_of_a_step(real):
    assert waiting(real["ScheduleGPipe"]) > waiting(real["Schedule1F1B"])
