"""What every kind of layer can do."""

import abc


class Layer(abc.ABC):
    """One layer of a workload; keeps from ``forward`` what ``backward`` needs, until ``backward`` has used it."""

    def __init__(self, description, weights, gradients, wants_input_gradient):
        """Bind the layer to its arrays.

        Args:
            description: the layer's JSON.
            weights: ``{role: array}``; read, never replaced.
            gradients: ``{role: array}`` of the same shapes; ``backward`` overwrites them.
            wants_input_gradient: False where nothing before the layer is trained; ``backward`` may then return None.
        """
        self.attributes = description["attributes"]
        self.output_shape = tuple(description["output_shape"])
        self.weights = weights
        self.gradients = gradients
        self.wants_input_gradient = wants_input_gradient
        self.saved = None

    @abc.abstractmethod
    def forward(self, *inputs):
        """Return the output; ``inputs`` must not be changed, others read them too."""

    @abc.abstractmethod
    def backward(self, gradient):
        """Return the gradients of the inputs, in their order, from that of the output; fill ``self.gradients``.

        ``gradient`` must not be changed; it may be returned.
        """
