"""What Horovod with TensorFlow gives to its tests."""

from steptime.libraries.tensorflow.contract import batches, clip_apart, freeze_last_layer, keep_back, weights
from steptime.worker.framework import CLIPPED_APART, FROZEN_LAYER, KEPT_GRADIENT, Contract

CONTRACT = Contract(
    batches, weights, faults={FROZEN_LAYER: freeze_last_layer, KEPT_GRADIENT: keep_back, CLIPPED_APART: clip_apart}
)
