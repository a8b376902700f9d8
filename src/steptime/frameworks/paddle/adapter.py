"""Training in PaddlePaddle: one worker, or several under its DataParallel over gloo."""

import os

from steptime.worker.framework import Framework, require_fp32


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises ValueError for a precision or a device that this adapter does not have.
    """
    require_fp32(job, "PaddlePaddle")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")  # MKL, as Paddle brings it, has fewer threads than it is told else
    from steptime.frameworks.paddle.session import PaddleSession

    return PaddleSession(job, context)


FRAMEWORK = Framework(open_session)
