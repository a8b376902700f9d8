"""Training with JAX: one worker, or several whose gradients are averaged within the compiled step."""

from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the job wants a GPU and there is none, ValueError when its dataset is another one.
    """
    from steptime.frameworks.jax.network import import_jax

    import_jax(job["threads"], job["device"], context.local_rank, job["precision"])
    if "own_reference" in job:
        from steptime.frameworks.jax.own_module import JaxOwnReference

        return JaxOwnReference(job, context)
    from steptime.frameworks.jax.session import JaxSession

    return JaxSession(job, context)


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    from steptime.frameworks.jax.network import import_jax

    import_jax(job["threads"], job["device"], context.local_rank)
    from steptime.frameworks.jax.mesh import JaxBackEnd

    return JaxBackEnd(job, context)


FRAMEWORK = Framework(open_session, open_back_end=open_back_end)
