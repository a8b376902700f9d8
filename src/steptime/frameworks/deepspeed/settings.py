"""What DeepSpeed's engine is told."""


def engine_settings(job, stage):
    """Return the engine's configuration for a job and a stage of ZeRO."""
    zero = {"stage": stage}
    if "bucket_values" in job["options"]:
        zero.update(
            reduce_bucket_size=job["options"]["bucket_values"], allgather_bucket_size=job["options"]["bucket_values"]
        )
    return {
        "train_micro_batch_size_per_gpu": job["batch_per_worker"],
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,  # 1 would be DeepSpeed's default, and another training
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # SGD is none of those that DeepSpeed names
        "torch_autocast": {"enabled": job["precision"] == "bf16", "dtype": "bfloat16"},
        "steps_per_print": 2**31,
    }
