"""The environment variables that MXNet reads once, when it is imported."""

import os

from steptime.worker.process_context import Job

BULK_VARIABLE = "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN"


def set_environment(job: Job) -> None:
    """Set the threads of this process and how the engine groups operators, and leave any key-value store.

    To be called before the import of MXNet.
    """
    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    os.environ.setdefault(BULK_VARIABLE, str(job["options"]["bulk_nodes"]))  # a study may set the variable itself
    if job["device"] == "cuda":
        from steptime.libraries.nvidia.wheels import load_libraries

        load_libraries()  # which a build for CUDA looks for on the machine only
    for name in [name for name in os.environ if name.startswith("DMLC_")]:
        del os.environ[name]  # a role left by the user's shell would turn this process into a server
