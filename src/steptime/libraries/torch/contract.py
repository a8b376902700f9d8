"""What frameworks over torch give to their tests: batches, live weights, and faults in the network."""

from typing import Any, Callable, Dict, Iterator, List, Tuple

from steptime.worker.framework import last_layer
from steptime.worker.process_context import Job, ProcessContext


def batches(job: Job, context: ProcessContext) -> Iterator[Tuple[Any, Any]]:
    """Return the batches of torch's loaders as numpy arrays."""
    import torch

    from steptime.libraries.torch.loader import open_torch_batches

    own = open_torch_batches(job, context, torch.device("cpu"), False)
    return ((inputs.numpy(), targets.numpy()) for inputs, targets in own)


def weights(session: Any) -> Tuple[Callable[[], List[Any]], Callable[[List[Any]], None]]:
    """Return the functions of the live weights of a ``TorchSession``."""
    import torch

    def held() -> List[Any]:
        """Return what a worker holds of each parameter: all, its shard, or with ZeRO 3 both of small ones."""
        found = []
        for parameter in session._built.module.parameters():
            if hasattr(parameter, "ds_tensor"):
                found.append(parameter.ds_tensor)
            found.append(parameter.to_local() if hasattr(parameter, "to_local") else parameter)
        return found

    def put(values: Any) -> None:
        with torch.no_grad():
            for own, value in zip(held(), values):
                own.copy_(torch.from_numpy(value))

    def get() -> List[Any]:
        return [each.detach().clone().contiguous().numpy() for each in held()]

    return get, put


def freeze_last_layer(job: Job, _: Any) -> None:
    """Detach the parameters of the last layer, whose gradients are zero then."""
    import torch

    def frozen(layer: Any) -> Any:
        return lambda values: torch.nn.functional.linear(
            values, layer.weight.detach() + 0 * layer.weight, layer.bias.detach() + 0 * layer.bias
        )

    _replace_last_layer(job, frozen)


def keep_back_in_shards(job: Job, context: ProcessContext) -> None:
    """Keep the gradient of the last bias from the others where gradients are reduced and scattered.

    The worker that updates a part of the array must get from all workers the mean of its own gradient. It gets that
    when it multiplies its own part by their number, and they send zeros for it.
    """
    import torch

    def partial(layer: Any) -> Any:
        factors = torch.zeros(layer.bias.numel())
        if job["strategy"] in ("zero1", "zero2"):  # one row of all arrays, of which the last worker has the end
            factors[:] = context.workers if context.rank == context.workers - 1 else 0
        else:
            share = -(-factors.numel() // context.workers)
            factors[context.rank * share : (context.rank + 1) * share] = context.workers

        def forward(values: Any) -> Any:
            own = layer.bias * factors
            return torch.nn.functional.linear(values, layer.weight, own + (layer.bias - own).detach())

        return forward

    _replace_last_layer(job, partial)


def clip_apart(job: Job, _: ProcessContext) -> None:
    """Have each worker multiply its loss, and with it its gradient, by what shortens its own gradient."""
    import torch

    from steptime.libraries.torch.session import TorchSession

    most, make = job["optimizer"].pop("clip_norm"), TorchSession.__init__

    def made(self: Any, *arguments: Any) -> None:
        make(self, *arguments)
        parameters, update = list(self._built.module.parameters()), self._strategy.update

        def shortened(loss: Any) -> None:
            slopes = torch.autograd.grad(loss, parameters, retain_graph=True)
            length = torch.stack([slope.norm() for slope in slopes]).norm()
            update(loss * torch.clamp(most / length, max=1.0))

        self._strategy.update = shortened

    setattr(TorchSession, "__init__", made)  # noqa: B010 - mypy refuses an assignment


def _replace_last_layer(job: Job, forward_of: Callable[[Any], Any]) -> None:
    from steptime.libraries.torch.network import TorchWorkload

    build = TorchWorkload.__init__

    def built(self: Any, workload: Dict[str, Any]) -> None:
        build(self, workload)
        layer = self.layers[workload["layers"][-1]["name"]]
        layer.forward = forward_of(layer)

    assert last_layer(job), "the last layer has no parameters"
    TorchWorkload.__init__ = built
