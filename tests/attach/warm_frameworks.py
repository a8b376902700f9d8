"""A process that has imported a framework, in forks of which scripts run: alone, or attached.

Importing takes two to four seconds of processor time, which is most of what a small script takes, and an interpreter
that takes a framework down at its end another one, in a fork. A fork begins a script as an interpreter does, and ends
with the exit code, the words and the functions of ``atexit`` with which one does; ``test_torch_scripts`` claims what
depends on either of processes of their own.
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
IMPORTS = {
    "pytorch": "import torch, torch.utils.data, torch._dynamo",  # the last is imported by every optimizer
    "tensorflow": "import tensorflow",
    "jax": "import jax, jax.numpy",
    "paddle": "import paddle",
    "mxnet": "import mxnet",
    "deepspeed": "import deepspeed, torch._dynamo",
}
"""Of each framework that can be used in a fork, since it starts neither threads nor devices before it is used."""
FORKING = """
import atexit, json, os, runpy, signal, sys, threading
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # for what a framework prints as it is imported
IMPORTS

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
else:
    os._exit(0)

signal.alarm(request["longest_s"])
os.chdir(request["folder"])
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, name in ((1, "out"), (2, "err")):
    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
sys.argv, sys.path[0] = [request["script"]], request["folder"]
code = 0
try:
    runpy.run_path(request["script"], run_name="__main__")
except SystemExit as asked:
    code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    if code != asked.code and code:
        print(asked.code, file=sys.stderr)
except BaseException:
    sys.excepthook(*sys.exc_info())
    code = 1
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code & 255)
"""


@dataclass(frozen=True)
class WarmFramework:
    """The process, and where what runs in its forks is recorded."""

    process: "subprocess.Popen[str]"
    records: Path

    def ended(self, folder: Path, script: str) -> "subprocess.CompletedProcess[str]":
        """Run a script of ``folder`` in it; return how it ended and what it printed."""
        request = {"folder": str(folder), "script": script, "longest_s": LONGEST_S}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        return subprocess.CompletedProcess(script, code, (folder / "out").read_text(), (folder / "err").read_text())

    def run(self, folder: Path, script: str) -> str:
        """Return what a script of ``folder`` printed, after the claim that it ended well."""
        done = self.ended(folder, script)
        assert done.returncode == 0, f"{script} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def end(self) -> None:
        """End the process, which no request reaches any more, and remove its folder."""
        self.process.communicate()
        shutil.rmtree(self.records.parent)

    def run_attached(self, folder: Path, script: str) -> str:
        """Likewise, with the files of its record moved to ``record`` in ``folder``."""
        printed = self.run(folder, script)
        self.move_records(folder / "record")
        return printed

    def move_records(self, folder: Path) -> None:
        """Move the files of what has been recorded into a new folder."""
        folder.mkdir()
        for path in self.records.iterdir():
            path.rename(folder / path.name)


@cache
def warm_framework(framework: str, *, attached: bool, lines: bool = False, flops: bool = False) -> WarmFramework:
    """Return the one such process of this process of pytest, which ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="steptime-warm-"))
    (folder / "record").mkdir()
    hook = environment(write_hook(folder / "hook"), folder / "record", lines=lines, flops=flops) if attached else {}
    process = subprocess.Popen(
        [interpreter_for(framework), "-c", FORKING.replace("IMPORTS", IMPORTS[framework])],
        env={**os.environ, **hook},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    made = WarmFramework(process, folder / "record")
    atexit.register(made.end)
    return made
