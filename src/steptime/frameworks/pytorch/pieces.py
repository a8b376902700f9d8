"""Which server holds which weights, and in what order they lie there."""

import torch

_OF_IMAGES = 4
"""Dimensions of a convolution's weights."""


class Pieces(object):
    """The weights of a network in one row of values per server.

    ``names``
        For every server, the parameters that it holds, in their order in the row.
    ``sizes``
        For every server, how many values it holds.
    """

    def __init__(self, layers, servers, sharding, innermost):
        """Share the parameters of ``layers`` out.

        Args:
            layers: of the workload.
            servers: how many there are; one that gets nothing holds an empty row.
            sharding: ``balanced`` gives the largest parameter that is left to the server that holds least;
                ``round_robin`` deals them out in the order of the layers.
            innermost: whether the weights of convolutions lie with their channels innermost.
        """
        parameters = [parameter for layer in layers for parameter in layer["parameters"]]
        self._shapes = {parameter["name"]: list(parameter["shape"]) for parameter in parameters}
        self._innermost = innermost
        order = [parameter["name"] for parameter in parameters]
        self.names = {"balanced": self._balanced, "round_robin": _round_robin}[sharding](order, servers)
        self.sizes = [sum(map(self._size, held)) for held in self.names]

    def views(self, server, row):
        """Return ``{name: tensor}`` of the parameters that lie in ``row``, in their own shapes; nothing is copied."""
        parts = row.split([self._size(name) for name in self.names[server]]) if self.names[server] else ()
        return {name: self._shaped(part, self._shapes[name]) for name, part in zip(self.names[server], parts)}

    def _shaped(self, part, shape):
        if self._innermost and len(shape) == _OF_IMAGES:
            outputs, inputs, height, width = shape
            return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
        return part.view(shape)

    def _size(self, name):
        return int(torch.Size(self._shapes[name]).numel())

    def _balanced(self, order, servers):
        held, loads = [set() for _ in range(servers)], [0] * servers
        for name in sorted(order, key=self._size, reverse=True):
            lightest = loads.index(min(loads))
            held[lightest].add(name)
            loads[lightest] += self._size(name)
        return [[name for name in order if name in own] for own in held]


def _round_robin(order, servers):
    return [order[server::servers] for server in range(servers)]
