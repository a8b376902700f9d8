"""The environment variables that MXNet reads once, when it is imported."""

import os


def set_environment(job):
    """Set the threads of this process and take it out of any key-value store; to be called before the import."""
    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    for name in [name for name in os.environ if name.startswith("DMLC_")]:
        del os.environ[name]  # a role left by the user's shell would turn this process into a server
