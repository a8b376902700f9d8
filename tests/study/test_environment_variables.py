"""Environment variables in a study: which can be set, which cannot and why, and how their values are written."""

import json

import pytest

from steptime.errors import StudyError
from steptime.study.environment_variables import PASSED, passed, refusal, stripped
from steptime.study.study import variables_of

SMALLEST = "workloads: lenet5\nframeworks: [pytorch, mxnet]\n"


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_ALGO", "NCCL_MIN_NCHANNELS", "GLOO_DEVICE_TRANSPORT", "UCX_TLS", "MXNET_EXEC_BULK_EXEC_TRAIN"),
        *("XLA_FLAGS", "TF_XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "KMP_AFFINITY", "KMP_BLOCKTIME", "OMP_PROC_BIND"),
        *("MKL_ENABLE_INSTRUCTIONS", "TORCH_NCCL_AVOID_RECORD_STREAMS", "HOROVOD_CACHE_CAPACITY"),
        *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "MALLOC_ARENA_MAX", "MALLOC_CONF", "GLIBC_TUNABLES"),
        *("OMPI_MCA_btl", "OMPI_MCA_pml"),
        *("PYTORCH_CUDA_ALLOC_CONF", "OMPI_MCA_btl_vader_eager_limit", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"),
    ],
)
def test_a_variable_that_tunes_a_library_can_be_set_and_is_not_inherited(name):
    assert refusal(name) is None
    assert stripped({name: "1"}) == [name]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("OMP_NUM_THREADS", "threads_per_worker"),
        ("MKL_NUM_THREADS", "threads_per_worker"),
        ("STEPTIME_PARENT", "belongs to steptime"),
        ("STEPTIME_RUN", "belongs to steptime"),
        ("DMLC_ROLE", "the launcher"),
        ("TF_CONFIG", "the launcher"),
        ("HOROVOD_RANK", "the launcher"),
        ("MASTER_ADDR", "the launcher"),
        ("GLOO_SOCKET_IFNAME", "network of a launch"),
        ("NCCL_SOCKET_IFNAME", "network of a launch"),
        ("CUDA_VISIBLE_DEVICES", "device"),
        ("NVIDIA_TF32_OVERRIDE", "precision"),
        ("HOROVOD_FUSION_THRESHOLD", "fusion_mb"),
        ("MXNET_KVSTORE_BIGARRAY_BOUND", "bigarray_bound"),
    ],
)
def test_a_variable_that_steptime_sets_is_refused_with_what_sets_it(name, reason):
    assert reason in refusal(name)


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PATH", "HOME"),
        *("BASH_ENV", "OMP_TOOL_LIBRARIES", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "MXNET_LIBRARY_PATH"),
        *("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", "CUDA_INJECTION64_PATH", "TORCHINDUCTOR_CACHE_DIR", "UCX_GDB_COMMAND"),
        *("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC"),
        *("OMPI_MCA_btl_base_path", "OMPI_MCA_pml_base_path"),
        *("OMPI_MCA_mca_base_component_path", "TRITON_PTXAS_PATH", "PYTORCH_KERNEL_CACHE_PATH", "NCCL_CONF_FILE"),
    ],
)
def test_a_variable_that_makes_a_process_run_something_is_refused_with_the_reason(name):
    assert "a study is data" in refusal(name)


@pytest.mark.parametrize("name", ["EDITOR", "http_proxy", "AWS_SECRET_ACCESS_KEY", "LANG"])
def test_a_variable_that_tunes_no_library_is_refused(name):
    assert "not a variable by which a library is tuned" in refusal(name)


@pytest.mark.parametrize("name", ["", "A B", "NCCL_A=B", "NCCL_A\0", "9A", "NCCL_É"])
def test_a_name_that_no_variable_can_have_is_refused(name):
    assert "is not a name" in refusal(name)


def test_what_finds_libraries_and_devices_is_passed_on_and_nothing_else_that_changes_speed():
    shell = {**dict.fromkeys(PASSED, "x"), "NCCL_DEBUG": "INFO", "LD_PRELOAD": "libjemalloc.so", "HOME": "/home/me"}

    assert passed(shell) == dict.fromkeys(PASSED, "x")
    assert stripped(shell) == ["LD_PRELOAD", "NCCL_DEBUG"]


def test_a_variable_is_for_all_frameworks_or_for_one_whose_own_value_wins(read):
    study = read(
        SMALLEST + "environment_variables: {KMP_BLOCKTIME: [0, 1], OMP_WAIT_POLICY: passive,"
        " mxnet: {KMP_BLOCKTIME: 200, MXNET_CPU_WORKER_NTHREADS: 2}}"
    )

    assert variables_of("pytorch", study.environment_variables) == {
        "KMP_BLOCKTIME": ["0", "1"],
        "OMP_WAIT_POLICY": ["passive"],
    }
    assert variables_of("mxnet", study.environment_variables) == {
        "KMP_BLOCKTIME": ["200"],
        "OMP_WAIT_POLICY": ["passive"],
        "MXNET_CPU_WORKER_NTHREADS": ["2"],
    }


def test_null_among_values_means_that_the_variable_is_not_set(read):
    study = read(SMALLEST + "environment_variables: {KMP_BLOCKTIME: [null, 1]}")

    assert study.environment_variables == {"KMP_BLOCKTIME": [None, "1"]}


def test_an_override_may_list_values(read):
    study = read(SMALLEST, "environment_variables.KMP_BLOCKTIME=0,200", "environment_variables.mxnet.OMP_SCHEDULE=auto")

    assert study.environment_variables == {"KMP_BLOCKTIME": ["0", "200"], "mxnet": {"OMP_SCHEDULE": ["auto"]}}


@pytest.mark.parametrize(
    ("written", "place", "reason"),
    [
        ({"LD_PRELOAD": "evil.so"}, "LD_PRELOAD", "a study is data"),
        ({"mxnet": {"PYTHONPATH": "x"}}, "mxnet.PYTHONPATH", "a study is data"),
        ({"OMP_NUM_THREADS": 4}, "OMP_NUM_THREADS", "threads_per_worker"),
        ({"XLA_FLAGS": "--xla_dump_to=/tmp/x"}, "XLA_FLAGS", "looks like a path"),
        ({"NCCL_ALGO": "Ring\0"}, "NCCL_ALGO", "cannot be printed"),
        ({"NCCL_ALGO": "a\nb"}, "NCCL_ALGO", "cannot be printed"),
        ({"NCCL_ALGO": True}, "NCCL_ALGO", "is not text"),
        ({"NCCL_ALGO": []}, "NCCL_ALGO", "empty list"),
        ({"NCCL_ALGO": "x" * 5000}, "NCCL_ALGO", "longer than"),
        ({"mxnt": {"OMP_SCHEDULE": "auto"}}, "mxnt", "did you mean 'mxnet'"),
        ({"mxnet": {"OMP_SCHEDULE": {"a": 1}}}, "mxnet", "is not a value of an environment variable"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_reason(read, written, place, reason):
    with pytest.raises(StudyError) as failure:
        read(SMALLEST + "environment_variables: " + json.dumps(written))

    assert any(f"environment_variables.{place}" in text and reason in text for text in failure.value.mistakes)


def test_an_inclusion_and_an_exclusion_cannot_set_what_a_study_cannot(read):
    for key in ("include", "exclude"):
        with pytest.raises(StudyError, match="a study is data"):
            read(SMALLEST + f"{key}: [{{environment_variables: {{LD_PRELOAD: x}}}}]")


def test_a_worker_cannot_have_fewer_cores_than_threads(read):
    with pytest.raises(StudyError, match="cores_per_worker: 1 is less than threads_per_worker, which is 2"):
        read(SMALLEST + "threads_per_worker: 2\ncores_per_worker: 1")
