"""Environment variables that change the speed of training: what a launch inherits of them, and what a study may set.

A launch inherits no variable of the families below from the user's shell, except those of ``PASSED``, which are kept
with its record. A study sets variables of the families by name. What a study must not set is said with the reason: a
study is data, so that it sets nothing that makes a process load or run something, and nothing that steptime sets.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

FAMILIES = (
    *("NCCL_", "RCCL_", "GLOO_", "UCX_", "UCC_", "TP_", "GRPC_", "FI_", "PSM2_", "PSM3_"),  # communication
    *("MPIR_CVAR_", "MPICH_", "MV2_", "I_MPI_", "OMPI_", "PRTE_", "HYDRA_", "HCOLL_"),  # MPI
    *("OMP_", "GOMP_", "KMP_", "TBB_", "MKL_", "ONEDNN_", "DNNL_", "MKLDNN_", "OPENBLAS_", "GOTO_", "BLIS_"),  # threads
    *("NUMEXPR_", "VECLIB_", "CUDA_", "CUDNN_", "CUBLAS_", "CUBLASLT_", "NVIDIA_", "TRITON_"),  # arithmetic
    *("TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "ATEN_", "DS_", "DEEPSPEED_", "HOROVOD_"),
    *("TF_", "XLA_", "TSL_", "JAX_", "PJRT_", "MXNET_", "DMLC_", "CHAINER_", "CHAINERMN_", "CUPY_", "CNTK_", "CAFFE_"),
    *("MALLOC_", "TCMALLOC_", "MIMALLOC_"),  # memory
)
"""Beginnings of the names of variables by which libraries are tuned."""
SINGLE = ("GLIBC_TUNABLES", "LD_PRELOAD", "LD_AUDIT", "LD_BIND_NOW")
PASSED = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH")
"""What launches inherit of the user's shell although it can change speed: where libraries and which devices are."""

_SETTABLE_OF_MPI = ("OMPI_MCA_btl_", "OMPI_MCA_coll_", "OMPI_MCA_pml_ob1_")
_TRANSPORTS_OF_MPI = ("OMPI_MCA_btl", "OMPI_MCA_pml")
"""By names of parts that Open MPI brings itself; whole names, since what begins so may name a path."""
_MPI_PROGRAMS = ("OMPI_", "PRTE_", "HYDRA_", "I_MPI_HYDRA_")
"""Families by which an mpiexec is told which programs to run, apart from a few that only tune messages."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_VALUE = 4096

_BY_THREADS = "the key threads_per_worker sets the number of compute threads"
_BY_LAUNCHER = "the launcher gives every process its rank and its peers"
_BY_NETWORK = "the launcher chooses the network of a launch"
_BY_DEVICE = "the keys device and workers say which devices are used; hide devices in your shell"
_BY_PRECISION = "the key precision sets the arithmetic"
_BY_STEPTIME = "it belongs to steptime and its processes"
_CONTROLLED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"),
            *("MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_DOMAIN_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS"),
            *("BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "PJRT_NPROC", "TF_NUM_INTRAOP_THREADS"),
            *("TF_NUM_INTEROP_THREADS", "MKLDNN_NUM_THREADS", "KMP_ALL_THREADS", "KMP_DEVICE_THREAD_LIMIT"),
        ),
        _BY_THREADS,
    ),
    **dict.fromkeys(
        (
            *("TF_CONFIG", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
            *("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_ADDR"),
            *("HOROVOD_GLOO_RENDEZVOUS_PORT", "NCCL_COMM_ID", "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES"),
            *("JAX_PROCESS_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        ),
        _BY_LAUNCHER,
    ),
    **dict.fromkeys(
        ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "UCX_NET_DEVICES"),
        _BY_NETWORK,
    ),
    **dict.fromkeys(
        (
            *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "JAX_PLATFORMS"),
            *("JAX_PLATFORM_NAME", "DS_ACCELERATOR"),
        ),
        _BY_DEVICE,
    ),
    **dict.fromkeys(
        (
            *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "MXNET_CUDA_ALLOW_TENSOR_CORE"),
            *("MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION", "CUPY_TF32", "CHAINER_DTYPE", "JAX_ENABLE_X64"),
            *("JAX_DEFAULT_MATMUL_PRECISION", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
        ),
        _BY_PRECISION,
    ),
    "MXNET_KVSTORE_BIGARRAY_BOUND": "the option bigarray_bound of mxnet sets it",
    "HOROVOD_FUSION_THRESHOLD": "the option fusion_mb of Horovod's frameworks sets it",
    "HOROVOD_CYCLE_TIME": "the option cycle_ms of Horovod's frameworks sets it",
    "HOROVOD_TIMELINE": "the option timeline of Horovod's frameworks sets it",
    "HOROVOD_CONTROLLER": "the option controller of Horovod's frameworks sets it",
    "HOROVOD_CPU_OPERATIONS": "the option controller of Horovod's frameworks sets it",
}
"""Why a study cannot set a variable that steptime sets."""
_CONTROLLED_FAMILIES = {
    **dict.fromkeys(("STEPTIME_",), _BY_STEPTIME),
    **dict.fromkeys(("DMLC_", "PMI_", "PMIX_", "SLURM_", "OMPI_COMM_", "MPI_LOCAL"), _BY_LAUNCHER),
}
_RUNS_CODE = "it makes a process load or run something, and a study is data"
_CODE_FAMILIES = ("PYTHON", "LD_", "DYLD_", "BASH_", "GCONV_")
_CODE_WORDS = re.compile(
    "(^|_)(PATHS?|DIRS?|DIRECTORY|FILES?|FILENAME|HOME|LIBS?|LIBRARY|LIBRARIES|PLUGINS?|PRELOAD|COMMAND|CMD"
    "|SHELL|COMPILER|CC|CXX|URLS?|URI|REMOTE|REDIS|ADDR|AGENT)(_|$)|INJECTION|_EXE(C?)$"
)
"""Words in names of variables that hold a file, a program or an address."""


def changes_speed(name: str) -> bool:
    """Whether the variable ``name`` belongs to a family by which libraries are tuned."""
    return name in SINGLE or name.startswith(FAMILIES)


def stripped(environment: Mapping[str, str]) -> list[str]:
    """Return the names in ``environment``, a user's shell, that change speed and that no launch inherits."""
    return sorted(
        name
        for name in environment
        if changes_speed(name) and name not in PASSED and not name.startswith(tuple(_CONTROLLED_FAMILIES))
    )


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what launches inherit of ``environment``, a user's shell, although it can change speed."""
    return {name: environment[name] for name in PASSED if name in environment}


def refusal(name: str) -> str | None:
    """Say why a study cannot set the variable ``name``; None if it can."""
    if not _NAME.fullmatch(name):
        return "is not a name of an environment variable; a name has letters, digits and underscores"
    families = (reason for family, reason in _CONTROLLED_FAMILIES.items() if name.startswith(family))
    if reason := _CONTROLLED.get(name) or next(families, None):
        return f"cannot be set by a study: {reason}"
    if name.startswith(_CODE_FAMILIES) or name in ("PATH", "HOME", "SHELL", "ENV", "IFS"):
        return f"cannot be set by a study: {_RUNS_CODE}; name an interpreter of your own that sets it (environments)"
    if not changes_speed(name):
        known = ", ".join(f"{family}*" for family in FAMILIES if family not in _CONTROLLED_FAMILIES)
        return f"is not a variable by which a library is tuned; a study can set those named {known}"
    of_mpi = name in _TRANSPORTS_OF_MPI or name.startswith(_SETTABLE_OF_MPI)
    if _CODE_WORDS.search(name.upper()) or (name.startswith(_MPI_PROGRAMS) and not of_mpi):
        return f"cannot be set by a study: {_RUNS_CODE}"
    return None


def variable_text(value: Any) -> str | None:  # noqa: ANN401 - whatever the file holds
    """Return the text of a variable's value in a study file; None, which leaves the variable unset, as it is.

    Raises ValueError with what to write instead.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        message = f"{str(value).lower()} is not text; write what the library expects: 1, 0, or 'true' in quotes"
        raise ValueError(message)  # noqa: TRY004 - pydantic collects ValueErrors
    if not isinstance(value, (int, float, str)):
        message = f"{value!r} is not a value of an environment variable; write a text or a number"
        raise ValueError(message)  # noqa: TRY004 - pydantic collects ValueErrors
    text = str(value)
    if not text.isprintable():
        message = f"{text!r} holds a character that cannot be printed, which a variable must not have"
        raise ValueError(message)
    if "/" in text:
        message = f"{text!r} looks like a path: {_RUNS_CODE}"
        raise ValueError(message)
    if len(text) > _LONGEST_VALUE:
        message = f"is longer than {_LONGEST_VALUE} characters"
        raise ValueError(message)
    return text


def in_words(variables: Mapping[str, str], names: Iterable[str] | None = None) -> str:
    """Return ``NAME=value NAME=value`` of ``variables``, of those in ``names`` where it is given."""
    wanted = variables if names is None else set(names)
    return " ".join(f"{name}={value}" for name, value in sorted(variables.items()) if name in wanted)
