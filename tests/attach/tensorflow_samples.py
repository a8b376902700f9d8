"""How scripts of TensorFlow in tests begin: two devices, batches of samples, and the error of a network."""

SAMPLES = """
import numpy as np, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
tf.keras.utils.set_random_seed(0)
numbers = np.random.default_rng(0)
samples = numbers.standard_normal((96, 16), np.float32), numbers.integers(0, 4, 96)
batches = tf.data.Dataset.from_tensor_slices(samples).batch(8)
error = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""
