"""Logs of trainings as each library writes them, with the step that they mean; small, and made for these tests."""

import json

_ENTRY = (
    " iteration {:8}/   1000 | consumed samples: {:12} | elapsed time per iteration (ms): {:.1f} | "
    "throughput per GPU (TFLOP/s/GPU): 140.2 | global batch size: {:5} | lm loss: 1.1E+01 |\n"
)


def megatron(workers: int, ms: float, batch: int | None = None) -> str:
    """Return a log of so many workers, with steps of this length; the batch of all is four a worker unless given."""
    head = f"  world_size ...................................... {workers}\n"
    return head + "".join(_ENTRY.format(n * 10, n * 640, ms + n % 3, batch or 4 * workers) for n in range(1, 13))


MEGATRON = megatron(16, 500.0)


def _at(second: float) -> str:
    return f"2026-11-27 10:{int(second) // 60:02}:{int(second) % 60:02},{round(second % 1 * 1000):03}"


LOGS = {
    "megatron": (MEGATRON, 0.501),
    "deepspeed-pipeline": (
        "[config.py:978:print]   train_batch_size ............. 256\n dist_world_size=8\n"
        + "".join(
            f"steps: {n} loss: 6.2 iter time (s): 0.{250 + n // 10 % 2} samples/sec: 1024\n" for n in range(10, 120, 10)
        ),
        0.2505,
    ),
    "deepspeed": (
        "  world_size ................... 8\n  train_batch_size ............. 64\n"
        + "".join(
            f"[{_at(0.8 * n)}] [INFO] [timer.py:260:stop] epoch=0/micro_step={n}/global_step={n}, "
            "RunningAvgSamplesPerSec=900.1, CurrSamplesPerSec=901.2, MemAllocated=1.0GB\n"
            for n in range(2, 14)
        ),
        0.8,
    ),
    "torchtitan": (
        "[rank0]:[titan] - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]\n"
        "[rank0]: Training starts at step 1, with local batch size 4, global batch size 16, sequence length 2048\n"
        + "".join(
            f"\x1b[31m[rank{rank}]:\x1b[0m - \x1b[33mstep: {n:2}  \x1b[32mloss:  7.1\x1b[39m  memory: 20.1GiB(21%)  "
            "tps: 8,192  tflops: 100.10  mfu: 32.1%\n"
            for n in range(10, 120, 10) for rank in (0, 1)
        ),
        0.5,
    ),
    "nemo": (
        "All distributed processes registered. Starting with 8 processes\n"
        + "".join(
            f"Training epoch 0, iteration {n}/99 | lr: 1e-05 | global_batch_size: 32 | global_step: {n} | "
            f"reduced_train_loss: 10.3 | train_step_timing in s: 1.{200 + n % 2}\n"
            for n in range(12)
        ),
        1.2005,
    ),
    "nemo-steps": (
        "All distributed processes registered. Starting with 8 processes\n"
        + "\r".join(
            f"Training: {n + 1}/100 [00:{n:02}<02:00, reduced_train_loss=10.3, global_step={n}.000, "
            f"consumed_samples={32 * n}.0, train_step_timing in s=1.{200 + n % 2}]"
            for n in range(12)
        )
        + "\n",
        1.2005,
    ),
    "horovod-synthetic": (
        "Model: resnet50\nBatch size: 32\nNumber of GPUs: 4\nRunning warmup...\nRunning benchmark...\n"
        + "".join(f"Iter #{n}: {320.0 + n % 2} img/sec per GPU\n" for n in range(10))
        + "Img/sec per GPU: 320.5 +-1.0\nTotal img/sec on 4 GPU(s): 1282.0 +-4.0\n",
        0.09984,
    ),
    "tf-cnn-benchmarks": (
        "Batch size:  128 global\n             32 per device\nVariables:   replicated\nStep\tImg/sec\ttotal_loss\n"
        + "".join(f"{n}\timages/sec: {rate} +/- 1.2 (jitter = 3.4)\t7.5\n" for n, rate in ((1, 640.0), (100, 512.0))),
        0.25,
    ),
    "transformers": (
        json.dumps({"global_step": 50, "log_history": [
            {"loss": 1.0, "step": 25},
            {"train_runtime": 20.0, "train_steps_per_second": 2.5, "train_samples_per_second": 40.0, "step": 50},
        ]}, indent=2),
        0.4,
    ),
    "lightning": (
        "epoch,step,train_loss,train|time\n" + "".join(f"0,{n},1.5,{n * 0.3:.1f}\n" for n in range(10, 130, 10)),
        0.3,
    ),
    "mlperf": (
        ':::MLLOG {"key": "global_batch_size", "value": 64, "time_ms": 1000, "metadata": {"lineno": 1}}\n'
        + "".join(
            f':::MLLOG {{"key": "eval_accuracy", "value": 0.1, "time_ms": {1000 + 2000 * n}, '
            f'"metadata": {{"samples_count": {640 * n}}}}}\n'
            for n in range(12)
        ),
        0.2,
    ),
}  # fmt: skip
"""By form: a log, and the seconds of its step."""
WITHOUT_STEPS = {
    "torchtune": "Step 1 | loss:1.2 tokens_per_second_per_gpu:1234.5\nStep 2 | tokens_per_second_per_gpu:1236.5\n",
    "ultralytics": "epoch,time,train/box_loss\n1,30.5,1.2\n2,60.0,1.1\n3,90.1,1.0\n",
    "lightning": "epoch,step,train_loss\n0,10,1.5\n0,20,1.4\n",
    "tf-cnn-benchmarks": "Batch size:  128 global\nVariables:   horovod\n1\timages/sec: 640.0 +/- 0.0\n",
    "transformers": '{"global_step": 5, "log_history": [{"loss": 1.0, "step": 5}]}',
}
"""Logs that do not show how long a step takes."""
