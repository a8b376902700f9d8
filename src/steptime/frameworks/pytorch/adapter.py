"""Training with PyTorch alone: one worker, DistributedDataParallel, FSDP2, or parameter servers over its RPC."""

from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of one of PyTorch's strategies."""
    from steptime.frameworks.pytorch.strategies import STRATEGIES
    from steptime.libraries.torch.session import open_torch_session

    return open_torch_session(job, context, STRATEGIES)


def serve(job, context):
    """Be a parameter server until all workers have left."""
    from steptime.frameworks.pytorch.parameter_server import serve_shard

    return serve_shard(job, context)


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    from steptime.frameworks.pytorch.collectives import ProcessGroupBackEnd, RpcBackEnd

    return (RpcBackEnd if context.servers else ProcessGroupBackEnd)(job, context)


def serve_back_end(job, context):
    """Be a server of the message benchmark."""
    from steptime.frameworks.pytorch.collectives import serve_rpc

    serve_rpc(job, context)


FRAMEWORK = Framework(open_session, serve=serve, open_back_end=open_back_end, serve_back_end=serve_back_end)
