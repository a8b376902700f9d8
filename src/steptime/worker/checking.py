"""The check loop: a few steps from known weights on known batches, whose losses and weights are kept."""

import os


def run_check(session, job, place, records):
    """Step ``job["schedule"]["check_steps"]`` times, write each loss, and save the weights at the end.

    The weights go to ``weights-<rank>.npz`` in the run folder, from every worker that holds them: comparing with a
    reference, and not only worker with worker, is what finds a fault that all workers share.
    """
    # Here, not at the top: timing needs no numpy, and every process of a launch imports this module.
    import numpy

    losses = []
    for _ in range(job["schedule"]["check_steps"]):
        session.step()
        session.wait()
        losses.append(session.loss())
    weights = session.get_weights()
    if weights is not None and job["schedule"].get("save_weights", True):
        numpy.savez(os.path.join(place.folder, "weights-%d.npz" % place.rank), **weights)
    records.write(
        "check", losses=losses, parameters=session.parameter_count(), output_shape=list(session.output_shape())
    )
