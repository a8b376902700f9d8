"""Training with JAX: one worker, or several whose gradients meet within the compiled step."""


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the job wants a GPU and there is none, ValueError when its dataset is not what it says.
    """
    from steptime.frameworks.jax.network import import_jax

    import_jax(job["threads"], job["device"], context.local_rank)
    from steptime.frameworks.jax.session import JaxSession

    return JaxSession(job, context)


def open_exchange(job, context):
    """Return the exchange that the network benchmark times."""
    from steptime.frameworks.jax.network import import_jax

    import_jax(job["threads"], job["device"], context.local_rank)
    from steptime.frameworks.jax.collectives import Meshed

    return Meshed(job, context)
