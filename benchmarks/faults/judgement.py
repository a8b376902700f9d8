"""What is asked of a study after each fault: what counts as broken."""

import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from kinds import Fault
from remnants import lines_of_records
from sites import LEAST, MOST

from steptime.cli.app import run_program

_ROUNDING_S = 0.01
"""Of the times in a record."""


def is_measured(launches: Counter[str]) -> bool:
    """Say whether a trial got the launches that it needs, or as many failed ones as give it up."""
    good, failed = launches["ok"], launches["failed"]
    return good >= LEAST or good + failed >= MOST or (failed > 1 and failed >= good)


def bad_manners(fault: Fault) -> list[str]:
    """Return the tracebacks of the commands, and a second command that was neither refused nor did it end well.

    It may come when the first has measured all and draws its report; that no two launches ran at once is asked apart.
    """
    said = [fault.run.said(), fault.second]
    found = [f"traceback: {each[-1500:]}" for each in said if "Traceback" in each]
    if fault.second and "in use" not in fault.second and fault.second_code != 0:
        found.append(
            f"the second command was not refused, and failed (exit code {fault.second_code}): {fault.second[-300:]}"
        )
    return found


def launch_of(fault: Fault, results: Path) -> tuple[str | None, list[str]]:
    """Return the status of the launch that ran when the fault happened, and what flags it; None if none was kept."""
    for path, line in lines_of_records(results):
        if not path.endswith("records.jsonl") or not fault.what:
            continue
        record = json.loads(line)
        began = datetime.fromisoformat(record["started_at"]).timestamp()
        if began <= fault.at <= began + record["wall_s"]:
            return record["status"], [
                each for each in record["flags"] if not each.startswith(("noisy: foreign", "more"))
            ]
    return None, []


def at_once(results: Path) -> list[str]:
    """Return the launches that ran beside another one of the same results, as launches of two commands would."""
    spans = []
    for path, line in lines_of_records(results):
        if path.endswith("records.jsonl"):
            record = json.loads(line)
            began = datetime.fromisoformat(record["started_at"]).timestamp()
            spans.append((began, began + record["wall_s"], f"{Path(path).parent.name}, launch {record['launch']}"))
    spans.sort()
    return [
        f"{later[2]} began {one[1] - later[0]:.1f} s before the end of {one[2]}"
        for one, later in pairwise(spans)
        if one[1] - later[0] > _ROUNDING_S
    ]


def unreadable(results: Path) -> list[str]:
    """Return what readers of the results say that they should not."""
    if not (results / "study.json").exists():
        return [f"{results} has records and no study"] if lines_of_records(results) else []
    found = []
    for arguments in (["report", "--json", "--"], ["export", "--to", "csv", "-o", str(results.parent / "export")]):
        code, said = _asked([*arguments, str(results)])
        if code or "damaged" in said or "Traceback" in said:
            found.append(f"steptime {arguments[0]} ended with {code}: {said[-500:]}")
    return found


def _asked(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command of steptime in a copy of this process, which has imported already what the command needs."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            code = 70
            with contextlib.suppress(BaseException):
                code = run_program(arguments)
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return code, output.read()
