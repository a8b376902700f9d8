"""What numpy_ring sends in a step: buckets of neighbouring gradients, one behind the other after the backward pass.

Pure Python without imports of the framework: the session cuts its gradients by this rule, and the predictor asks it
what travels when.
"""

from steptime.worker.communication import END_OF_BACKWARD, KIB, CommunicationPlan, message_of


def bucket_lengths(sizes, limit_bytes):
    """Return how many neighbouring gradients each bucket holds.

    Args:
        sizes: bytes of every gradient, in the order of the forward pass.
        limit_bytes: a bucket closes with the gradient that reaches so many bytes.
    """
    lengths, held = [0], 0
    for size in sizes:
        lengths[-1] += 1
        held += size
        if held >= limit_bytes:
            lengths.append(0)
            held = 0
    return [length for length in lengths if length]


def buckets(work, context):
    """Return one message per bucket, all behind the backward pass."""
    gradients = list(work.forward_gradients())
    messages, start = [], 0
    for length in bucket_lengths([gradient.bytes for gradient in gradients], context.number("bucket_kb") * KIB):
        messages.append(message_of(gradients[start : start + length], after=END_OF_BACKWARD))
        start += length
    return CommunicationPlan(tuple(messages))


POLICIES = {"allreduce": buckets}
