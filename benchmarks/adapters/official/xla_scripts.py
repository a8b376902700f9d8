"""Official scripts of JAX, of TensorFlow and of Horovod for TensorFlow."""

from official.script import OfficialScript, ScriptRun

_ONE_THREAD = {"PJRT_NPROC": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


def _jax_mnist(run: ScriptRun) -> list[list[str]]:
    return [run.command()]


XLA_SCRIPTS = {
    "jax-mnist-classifier": OfficialScript(
        framework="jax",
        url="https://github.com/jax-ml/jax/blob/main/examples/mnist_classifier.py",
        commands=_jax_mnist,
        workloads=("mnist-mlp",),
        optimizer={"learning_rate": 0.001},
        strategies={1: "single"},
        modules="jax_modules",
        environment={**_ONE_THREAD, "RACE_STOP": "1"},
        differences=(
            "It trains with batches of 128 only, which it gathers from an array in every step.",
            "The state is not donated.",
            "Each step is waited for before the next batch is taken, or nothing would tell when it ended.",
        ),
    ),
}
