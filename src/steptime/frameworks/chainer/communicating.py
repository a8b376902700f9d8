"""The communicator of ChainerMN that a job asks for."""

_BY_DEVICE = {
    "cpu": ("naive",),
    "cuda": ("pure_nccl", "flat", "non_cuda_aware", "naive"),
}


def open_communicator(name, device, place):
    """Return ChainerMN's communicator ``name`` over all workers; ``auto`` is the device's usual one.

    Raises ValueError for a communicator that the device does not have, and RuntimeError when MPI sees other workers
    than the launcher started.
    """
    choices = _BY_DEVICE[device]
    if name == "auto":
        name = choices[0]
    if name not in choices:
        raise ValueError(
            "ChainerMN's communicator %r does not work on the device %s (choices: auto, %s)"
            % (name, device, ", ".join(choices))
        )
    import chainermn  # initialises MPI

    communicator = chainermn.create_communicator(name)
    if (communicator.rank, communicator.size) != (place.rank, place.workers):
        raise RuntimeError(
            "MPI says worker %d of %d where the launcher says %d of %d; mpiexec and the MPI library of this "
            "environment are probably of different kinds, remove one of them"
            % (communicator.rank, communicator.size, place.rank, place.workers)
        )
    return communicator
