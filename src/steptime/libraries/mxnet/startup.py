"""What is set before MXNet builds networks: the environment variables that it reads once, and mixed precision.

Automatic mixed precision (AMP) gives operators their inputs in fp16, beside weights in float32.
"""

import os

from steptime.worker.process_context import Job

BULK_VARIABLE = "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN"
_LOSS_SCALE = 1024.0


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


def use_precision(job: Job) -> None:
    """Have all networks that are built from now on compute in the job's precision.

    Raises ValueError where this build of MXNet has no such products on the device.
    """
    precision, device = job["precision"], job["device"]
    if precision == "fp32":
        return
    if (precision, device) != ("fp16", "cuda"):
        raise ValueError(
            "MXNet trains in fp32, and on CUDA devices in fp16, not in %s on %s; set precision to fp32"
            % (precision, device)
        )
    from mxnet.contrib import amp

    amp.init(target_dtype="float16")


def loss_scale(job: Job) -> float:
    """Return by what the loss is multiplied before gradients are computed, so that small ones are none of 0 in fp16.

    A constant of MXNet's guide to mixed precision (1024), by which the optimizer divides again. AMP's own scale that
    changes is gluon's, and looks at all gradients in every step.
    """
    return _LOSS_SCALE if job["precision"] == "fp16" else 1.0
