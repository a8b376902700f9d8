"""Which GPUs of a host its processes see: the meaning of ``CUDA_VISIBLE_DEVICES``.

Host agents import this, so that it needs the standard library only.
"""

from collections.abc import Sequence


def visible_devices(visible: str, uuids: Sequence[str]) -> list[int]:
    """Return the indices of the devices that a value of ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order.

    As the CUDA programming guide has it, the list ends before its first entry that is not a device; an empty value
    hides all devices. An entry is an index, or ``GPU-`` with the beginning of one device's UUID. A device that is named
    twice makes the whole list invalid, so that none is visible.

    >>> visible_devices("1,-1,0", ["GPU-a", "GPU-b"])
    [1]
    """
    found: list[int] = []
    for entry in visible.split(","):
        index = _device_index(entry.strip(), uuids)
        if index is None:
            break
        found.append(index)
    return found if len(set(found)) == len(found) else []


def _device_index(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    if not entry.startswith("GPU-"):
        return None
    matching = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None
