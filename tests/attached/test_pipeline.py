"""Stages of a pipeline: the bubble of its schedule by recorded sends and passes, beside the waiting that was seen."""

import json
import os
import subprocess

import pytest
from launching import interpreter_for
from program import PROGRAM
from stored_processes import BEGIN, MS, found_in, process_lines, step, write

from steptime.launchers.base import free_ports

SCRIPT = """
import sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
schedule, micro_batches, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
width, rows = 768, 128
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


def measured(folder, schedule, micro_batches):
    """Return what is found in a real pipeline of two processes."""
    python = interpreter_for("pytorch")
    (port,) = free_ports(1)
    (folder / "train.py").write_text(SCRIPT)
    command = [*PROGRAM, "attach", "-o", str(folder / "results"), "--json", "--", str(python), "-m"]
    command += ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port), "train.py"]
    done = subprocess.run(
        [*command, schedule, str(micro_batches), str(STEPS)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    return json.loads(done.stderr.splitlines()[-1])


@pytest.mark.alone
@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_a_real_pipeline_waits_at_least_as_long_as_its_bubble(tmp_path, schedule):
    shares = {}
    for micro_batches in (2, 8):
        folder = tmp_path / str(micro_batches)
        folder.mkdir()
        found = measured(folder, schedule, micro_batches)
        said = next((each["sentence"] for each in found["findings"] if each["kind"] == "pipeline"), "")
        assert f"2 stages of a pipeline, with {micro_batches} backward passes" in said
        shares[micro_batches] = next(part["share"] for part in found["parts"] if part["name"] == "exchange")
    assert shares[2] > shares[8]
    assert shares[2] >= 0.8 / 3
