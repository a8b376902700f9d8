"""Which devices this host has, asked of the driver and without any framework."""

import os


def cuda_device_names() -> list[str]:
    """Return the names of the CUDA devices that ``CUDA_VISIBLE_DEVICES`` leaves visible; none where no driver is."""
    import pynvml  # noqa: PLC0415 - needed by few verbs, and quick ones must stay quick

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return names
    chosen = [part.strip() for part in visible.split(",") if part.strip()]
    return names[: len(chosen)]
