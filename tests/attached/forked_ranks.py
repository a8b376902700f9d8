"""Runs a script as two ranks, forks of one process that has imported torch: ``forked_ranks.py SCRIPT [WORD …]``.

torchrun imports torch, and so does each worker that it starts, which takes longer than most trainings of tests.
"""

import atexit
import os
import runpy
import socket
import sys
import threading
from pathlib import Path

FORKED_RANKS = __file__
RANKS = 2


def main() -> None:
    """Fork the ranks; end as they do."""
    import torch._dynamo  # noqa: PLC0415 - the framework's environment alone has it; every optimizer imports it
    import torch.distributed  # noqa: F401, PLC0415

    script, *words = sys.argv[1:]
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    os.environ.update(WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    for rank in range(RANKS):
        if not os.fork():
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            sys.argv, sys.path[0] = [script, *words], str(Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(0)
    ended = [os.wait()[1] for _ in range(RANKS)]
    sys.exit(any(ended))


if __name__ == "__main__":
    main()
