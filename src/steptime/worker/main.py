"""One process of a launch: it reads ``job.json``, plays its role, and writes its records as JSON Lines."""

import importlib
import json
import os
import platform
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional

from steptime.worker.ablation import run_ablation
from steptime.worker.check import run_check
from steptime.worker.message_timing import run_message_timing
from steptime.worker.precision import computed_in, limit_libraries, require_precision
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import DrawnBatches, Session
from steptime.worker.shared_file import RecordFile, open_plain
from steptime.worker.tether import HelperWatch, die_with_parent, last_line
from steptime.worker.timing import run_loader, run_timed
from steptime.worker.training import run_training
from steptime.worker.usage import found_threads

if TYPE_CHECKING:
    from steptime.worker.framework import Framework


def _run_replay(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    from steptime.worker.timed_evidence import run_replay  # it needs numpy, which servers may lack

    run_replay(session, job, context, records)


_MODES: Dict[str, Callable[[Session, Job, ProcessContext, RecordFile], None]] = {
    "time": run_timed,
    "check": run_check,
    "replay": _run_replay,
    "ablation": run_ablation,
    "loader": run_loader,
    "train": run_training,
}


_RANKED = ("time", "ablation", "train")
"""Modes by whose speed a framework is ranked, or that explain it."""


def run_process(job_path: str, environment: Optional[Mapping[str, str]] = None) -> int:
    """Run this process's role in the launch that ``job_path`` describes; return the exit code.

    ``environment`` replaces ``os.environ`` where the worker runs inside another program's process, which then keeps
    its own output, cores and parent.

    A failure is written to the process's records (the last line of its cause, and the traceback) as well as to its
    standard error, so that the runner can say why without guessing from text.
    """
    folder = os.path.dirname(os.path.abspath(job_path))
    context = ProcessContext(os.environ if environment is None else environment, folder)
    if environment is None:
        die_with_parent()
        context.pin()
        redirect_output(context)
    with open(job_path) as file:
        job = json.load(file)
    context.secret = job.get("secret", "").encode()
    records = RecordFile(os.path.join(folder, context.name + ".jsonl"))
    try:
        _run_role(job, context, records)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # whatever a framework throws, SystemExit included, must be reported as a failure
        if isinstance(error, SystemExit) and not error.code:
            return 0
        records.write(
            "error",
            at_s=time.monotonic(),
            at_wall_s=time.time(),
            error=type(error).__name__,
            message=str(error),
            traceback=traceback.format_exc(),
        )
        traceback.print_exc()
        return 1
    finally:
        if "begins" in job:
            _begin_with({"weights": None, "batches": ()})  # a launcher may start the next one in this process
        records.close()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _run_role(job: Job, context: ProcessContext, records: RecordFile) -> None:
    framework: "Framework" = importlib.import_module("steptime.frameworks.%s.adapter" % job["framework"]).FRAMEWORK
    records.write("process", pid=os.getpid(), host=socket.gethostname(), python=platform.python_version())
    times_messages = job["mode"] == "net"
    if "begins" in job:
        _begin_with(job["begins"])
    if context.role != "worker":
        serve = framework.function("serve_back_end" if times_messages else "serve")
        served = serve(of_adapter(job), context)
        records.write("threads", **dict(found_threads(), **(served or {})))
        return
    if times_messages:
        run_message_timing(framework, job, context, records)
        return
    limit_libraries(job)
    DrawnBatches.forget()

    def end(reason: str) -> None:
        _end_without_helper(reason, context, records)

    started = time.monotonic()
    with HelperWatch(end, needed=job.get("loader", {}).get("processes", 0) > 0) as helpers:
        session = framework.open_session(of_adapter(job), context)
        try:
            require_variables(job)
            facts, opened_in_s = session.facts(), time.monotonic() - started
            products = session.probe_precision()
            facts["precision"] = require_precision(job["precision"], products)
            if job["precision"] == "tf32":
                facts["computed_in"] = computed_in(products)
            if context.left_out:
                facts["left_out_of_library_path"] = context.left_out
            records.write("session", facts=facts, opened_in_s=opened_in_s)
            _MODES[job["mode"]](session, job, context, records)
            helpers.stop()
            peak = session.device_peak_bytes()
            peaks = {} if peak is None else {"device_peak_bytes": peak}
            records.write("threads", **dict(found_threads(), **dict(session.facts_at_end(), **peaks)))
        except BaseException:
            helpers.stop()
            session.abort()
            raise
    session.close()
    records.write("done")


def _begin_with(begins: Dict[str, Any]) -> None:
    """Let the training of this process begin with the ``weights`` of a file, behind so many ``batches`` of each rank.

    An adapter does not see it, so that it trains as it does from the weights that are drawn.
    """
    from steptime.worker.samples import FirstBatch
    from steptime.worker.weights import FirstWeights

    FirstWeights.path, FirstBatch.before = begins["weights"], begins["batches"]


def of_adapter(job: Job) -> Job:
    """Return the job as an adapter sees it, which must not depend on whether its steps are timed or checked.

    ``mode`` and ``schedule`` are left out. Instead, ``ablated`` is whether the step will be broken down, ``learns``
    whether the learning rate may change, outputs are asked for and the state is kept. Of a job on a CUDA device alone,
    ``searches`` is whether a search for the quickest kernels pays, which takes longer than the steps of a check.
    """
    seen = {name: value for name, value in job.items() if name not in ("mode", "schedule", "begins")}
    seen["ablated"] = job["mode"] == "ablation"
    if job["device"] == "cuda":
        seen["searches"] = job["mode"] in _RANKED
    seen.setdefault("learns", "training" in job or bool(job.get("schedule", {}).get("rates")))
    return seen


def _end_without_helper(reason: str, context: ProcessContext, records: RecordFile) -> None:
    """Record that a helper of the loader has died, with what it said last, and end this process: training waits."""
    sys.stderr.flush()
    said = last_line(os.path.join(context.folder, context.name + ".err"))
    message = "%s; its last line: %s" % (reason, said) if said else reason
    now = {"at_s": time.monotonic(), "at_wall_s": time.time()}
    records.write("error", error="ChildProcessError", message=message, traceback=message, **now)
    records.close()
    os.write(2, (message + "\n").encode())
    os._exit(1)


def require_variables(job: Job) -> None:
    """Raise RuntimeError where the process has another value of a variable of the job than the study set.

    A framework's adapter may add to a value, as to the flags of XLA, but not replace it.
    """
    for name, value in sorted(job.get("environment_variables", {}).items()):
        found = os.environ.get(name)
        if found is None or value not in found:
            raise RuntimeError(
                "the study sets %s to %r, and %s has changed it to %r; leave it out of environment_variables"
                % (name, value, job["framework"], found)
            )


def redirect_output(context: ProcessContext) -> None:
    """Send standard output and error to this process's own files, whatever started it.

    An MPI launcher merges the output of all ranks; files of their own keep every rank's last words.
    """
    if os.environ.get("STEPTIME_OUTPUT") == "inherit":
        return
    for descriptor, ending in ((1, ".out"), (2, ".err")):
        path = os.path.join(context.folder, context.name + ending)
        file = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
