"""Hosts of JAX that run ahead of their device, of which a result is read in an evaluation alone."""

import pytest
from stored_processes import BEGIN, MS, found_in, part_of, process_lines, sentences_of, step, write

STEPS, EVERY = 40, 10
"""Steps, and after how many of them the host evaluates."""
DEVICE_MS, EVALUATED_MS = 30.0, 50.0


def job(folder, input_ms=10.0, *, reads=False, loader=True, region="input"):
    """Return a run whose host asks for a batch and for a step; an evaluation waits for all steps before it.

    ``reads`` is whether each step waits for its result; without a ``loader`` an evaluation lies ahead of the call of
    the next step. ``region`` is that of the batch, none for code of the script's own.
    """
    host, device = 0.0, 0.0  # until when each is busy, in milliseconds since the first step
    steps, lines = [], []
    for number in range(STEPS):
        begin = host
        apart = {}
        if not loader and number and number % EVERY == 0:
            apart, host = _evaluation(begin, device)
        asked = host + input_ms
        ended = max(asked, device) + DEVICE_MS
        times = [BEGIN + round(moment * MS) for moment in (max(asked, device), ended)]
        device = ended
        regions = {
            **({region: input_ms} if region else {}),
            "call": 1.0,
            "wait": max(0.0, device - asked - 1.0) if reads else 0.0,
        }
        host = asked + 1.0 + regions["wait"]
        if loader and number % EVERY == EVERY - 1:
            apart, host = _evaluation(host, device)
        gaps = {} if region else {"call>call": input_ms}
        one = step(number, BEGIN + round(begin * MS), regions, gaps, flags=[] if loader else ["no_loader"])
        steps.append({**one, "duration_ns": round((host - begin) * MS), **apart})
        span = {"span_ns": times[1] - times[0], "begin_ns": times[0], "end_ns": times[1]}
        lines.append({"kind": "device", "step": number, "regions": {"call": span["span_ns"]}, **span})
    process = process_lines(0, 1, steps, lines=lines)
    process[-1]["at_ns"] = BEGIN + round(max(host, device) * MS)  # the script's end reads a result
    return found_in(write(folder, process), 60_000.0)


def _evaluation(begin, device):
    end = max(begin, device) + EVALUATED_MS
    lasted = round((end - begin) * MS)
    apart = {"begin_ns": BEGIN + round(begin * MS), "end_ns": BEGIN + round(end * MS)}
    return {"apart": {**apart, "regions": {"nograd": lasted}, "gaps": {}}}, end


@pytest.mark.parametrize("loader", [True, False], ids=["loader", "no-loader"])
def test_a_step_takes_what_its_device_takes_where_evaluations_wait_for_that(tmp_path, loader):
    run = job(tmp_path, loader=loader)
    assert run.step_s.value == pytest.approx(DEVICE_MS / 1e3, rel=0.1)
    assert part_of(run, "device_wait").time_s.value == pytest.approx((DEVICE_MS - 11.0) / 1e3, rel=0.1)


@pytest.mark.parametrize("loader", [True, False], ids=["loader", "no-loader"])
def test_evaluations_do_not_have_the_time_of_steps_that_they_wait_for(tmp_path, loader):
    (evaluated,) = [part for part in job(tmp_path, loader=loader).job if part.name == "evaluation"]
    assert evaluated.time_s == pytest.approx(evaluated.count * EVALUATED_MS / 1e3, rel=0.01)


def test_the_parts_of_the_job_add_up_to_it(tmp_path):
    run = job(tmp_path)
    assert sum(part.share for part in run.job) == pytest.approx(1.0)


def test_a_host_that_reads_each_result_is_not_ahead(tmp_path):
    run = job(tmp_path, reads=True)
    assert run.step_s.value == pytest.approx((10.0 + DEVICE_MS) / 1e3, rel=0.01)


def test_an_input_that_is_asked_for_while_the_device_is_busy_is_no_finding(tmp_path):
    assert "input" not in sentences_of(job(tmp_path))


def test_an_input_that_the_device_waits_for_is_a_finding(tmp_path):
    assert "each step waits 10 ms" in sentences_of(job(tmp_path, reads=True))["input"]


def test_an_input_that_takes_longer_than_the_device_is_a_finding(tmp_path):
    assert "each step waits 60 ms" in sentences_of(job(tmp_path, 60.0))["input"]


def test_code_that_runs_while_the_device_is_busy_is_no_finding(tmp_path):
    assert "gaps" not in sentences_of(job(tmp_path, region=""))


def test_code_that_takes_longer_than_the_device_costs_what_that_lacks(tmp_path):
    (gaps,) = [finding for finding in job(tmp_path, 60.0, region="").findings if finding.kind == "gaps"]
    assert "lacks work for" in gaps.sentence
    assert gaps.lost_s == pytest.approx((61.0 - DEVICE_MS) / 1e3 * STEPS, rel=0.1)
