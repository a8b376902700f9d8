"""Variables of a graph as numpy arrays and back, and the graph's evaluation of a batch."""

from steptime.worker.weights import channels_first, channels_last


class GraphVariables(object):
    """Variables that can be read and set after the graph is finished."""

    def __init__(self, tf1, variables):
        """Build upon ``{name: variable}``."""
        self._reads = {name: variable.read_value() for name, variable in variables.items()}
        self._fed, self._assignments = {}, []
        for name, variable in variables.items():
            with tf1.device(variable.device):
                self._fed[name] = tf1.placeholder(variable.dtype.base_dtype, variable.shape)
                self._assignments.append(variable.assign(self._fed[name]).op)

    def read(self, session):
        """Return ``{name: array}``."""
        return session.run(self._reads)

    def set(self, session, arrays):
        """Set the variables to what ``read`` returned."""
        session.run(self._assignments, {fed: arrays[name] for name, fed in self._fed.items()})


class GraphEvaluation(object):
    """The outputs of a network in evaluation, with the weights that its variables hold when it is run."""

    def __init__(self, tf1, network, batch, input_shape):
        """Build the evaluation of ``batch`` samples of ``input_shape``, channels first."""
        shape = [batch] + list(input_shape[1:]) + list(input_shape[:1])
        self._inputs = tf1.placeholder(tf1.float32, shape)
        self._outputs = network.evaluate(self._inputs)

    def outputs(self, session, inputs):
        """Return the outputs for a batch, both as arrays with channels first."""
        return channels_first(session.run(self._outputs, {self._inputs: channels_last(inputs)}))
