"""A worker's share of the validation set, and what the network makes of it."""

from typing import Any, Dict

import numpy

from steptime.worker.batches import ArraySamples
from steptime.worker.process_context import Job
from steptime.worker.session import Session


class Validation(object):
    """The samples ``rank``, ``rank + workers``, … in batches of which every worker has equally many.

    What the last batches lack is filled up with samples that are not counted, so that a sharded strategy's workers call
    their network equally often.
    """

    def __init__(self, job: Job, rank: int, workers: int) -> None:
        """Read the validation set of ``job["training"]``.

        Raises ValueError where it does not hold what the job asks for.
        """
        dataset, workload = job["training"]["validation"], job["workload"]
        self._samples = ArraySamples(dataset, workload["input_shape"])
        self._batch = job["batch_per_worker"]
        self._squared = workload["loss"] == "mean_squared_error"
        own = numpy.arange(rank, dataset["samples"], workers)
        batches = -(-dataset["samples"] // (workers * self._batch))
        filling = numpy.zeros(batches * self._batch - len(own), dtype=own.dtype)
        self._counted = len(own)
        self._chosen = numpy.concatenate([own, filling]).reshape(batches, self._batch)

    def evaluate(self, session: Session) -> Dict[str, Any]:
        """Return ``counted`` samples, how many are ``correct`` (None without classes) and the sum of their losses."""
        correct, loss_sum, left = 0, 0.0, self._counted
        for chosen in self._chosen:
            inputs = self._samples.inputs(chosen)
            outputs = numpy.asarray(session.outputs(inputs), dtype=numpy.float64)
            kept = min(max(left, 0), self._batch)
            left -= kept
            if self._squared:
                distances = outputs.reshape(self._batch, -1) - inputs.reshape(self._batch, -1)
                loss_sum += float(numpy.square(distances).mean(axis=1)[:kept].sum())
                continue
            labels, outputs = self._samples.labels[chosen][:kept], outputs.reshape(self._batch, -1)[:kept]
            loss_sum += float(_cross_entropies(outputs, labels).sum())
            correct += int((outputs.argmax(axis=1) == labels).sum())
        return {"counted": self._counted, "correct": None if self._squared else correct, "loss_sum": loss_sum}


def _cross_entropies(outputs: numpy.ndarray, labels: numpy.ndarray) -> numpy.ndarray:
    """Return -log softmax(output)[label] of each sample, without label smoothing."""
    scores = outputs - outputs.max(axis=1, keepdims=True) if len(outputs) else outputs
    losses: numpy.ndarray = numpy.log(numpy.exp(scores).sum(axis=1)) - scores[numpy.arange(len(labels)), labels]
    return losses
