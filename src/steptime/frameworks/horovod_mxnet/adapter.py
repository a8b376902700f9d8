"""Training with MXNet and Horovod: one worker without Horovod, or gradients averaged by it."""

import os


def open_session(job, place):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    # Before MXNet is imported, which reads them once; a role left by the user's shell would make a server of it.
    for name in [name for name in os.environ if name.startswith("DMLC_")]:
        del os.environ[name]
    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    from steptime.frameworks.horovod_mxnet.session import HorovodSession

    return HorovodSession(job, place)
