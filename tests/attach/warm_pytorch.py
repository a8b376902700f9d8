"""A process that has imported PyTorch, in forks of which scripts run: alone, or attached.

Importing takes two seconds of processor time, which is most of what a small script takes. A fork begins a script as an
interpreter does and ends as one does. ``test_torch_scripts`` starts processes of their own.
"""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from launching import interpreter_for

from steptime.attach.folder import environment, write_hook

LONGEST_S = 300
FORKING = """
import json, os, runpy, signal, sys
import torch, torch.utils.data, torch._dynamo  # which every optimizer imports

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)

signal.alarm(request["longest_s"])
os.chdir(request["folder"])
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, name in ((1, "out"), (2, "err")):
    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
sys.argv, sys.path[0] = [request["script"]], request["folder"]
runpy.run_path(request["script"], run_name="__main__")
"""


@dataclass(frozen=True)
class WarmPyTorch:
    """The process, and where what runs in its forks is recorded."""

    process: "subprocess.Popen[str]"
    records: Path

    def run(self, folder: Path, script: str) -> str:
        """Run a script of ``folder`` in it; return what it printed, after the claim that it ended well."""
        request = {"folder": str(folder), "script": script, "longest_s": LONGEST_S}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        code = self.process.stdout.readline().strip()
        assert code == "0", f"{script} ended with {code}: {(folder / 'err').read_text()}"
        return (folder / "out").read_text()

    def end(self) -> None:
        """End the process, which no request reaches any more, and remove its folder."""
        self.process.communicate()
        shutil.rmtree(self.records.parent)

    def run_attached(self, folder: Path, script: str) -> str:
        """Likewise, with the files of its record moved to ``record`` in ``folder``."""
        printed = self.run(folder, script)
        (folder / "record").mkdir()
        for path in self.records.iterdir():
            path.rename(folder / "record" / path.name)
        return printed


@cache
def warm_pytorch(*, attached: bool) -> WarmPyTorch:
    """Return the one process of this process of pytest, which ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="steptime-warm-"))
    (folder / "record").mkdir()
    hook = environment(write_hook(folder / "hook"), folder / "record", lines=False, flops=False) if attached else {}
    process = subprocess.Popen(
        [interpreter_for("pytorch"), "-c", FORKING],
        env={**os.environ, **hook},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    warm = WarmPyTorch(process, folder / "record")
    atexit.register(warm.end)
    return warm
