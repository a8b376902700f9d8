"""Training with JAX: one worker, or several whose gradients meet within the compiled step."""


def open_session(job, place):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the job wants a GPU and there is none, ValueError when its dataset is not what it says.
    """
    from steptime.worker.builders.jax import import_jax

    import_jax(job["threads"], job["device"], place.local_rank)
    from steptime.frameworks.jax.training import JaxSession

    return JaxSession(job, place)


def open_exchange(job, place):
    """Return the exchange that the network benchmark times."""
    from steptime.worker.builders.jax import import_jax

    import_jax(job["threads"], job["device"], place.local_rank)
    from steptime.frameworks.jax.exchanging import Meshed

    return Meshed(job, place)
