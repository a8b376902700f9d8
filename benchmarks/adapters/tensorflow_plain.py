"""A plain TensorFlow training loop, as an expert would write it; see race_plain.py for its arguments.

With a rank it trains under MultiWorkerMirroredStrategy, whose servers listen at the root's port and those that follow.
In the tier ``tuned`` oneDNN is switched on, and rank 0 trains for all ranks by MirroredStrategy, on a part of the
processor for each; ``RACE_ONE_PROCESS=0`` keeps a process for each rank, with gradients in packs of
4 MB. Everything is one graph over ``tf.nn``: the same with Keras's layers and optimizer took about a tenth more CPU
time.
"""

import json
import math
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Left off by default where there is no AVX-512 VNNI.
os.environ.update({"TF_ENABLE_ONEDNN_OPTS": "1"} if os.environ.get("RACE_TUNING") == "tuned" else {})

import tensorflow as tf

TUNED = os.environ.get("RACE_TUNING") == "tuned"

VARIABLES = []
VELOCITIES = []


def main(workload: str, batch: int, steps: int, warmup: int, strategy: tf.distribute.Strategy) -> None:
    """Train and print the ends of the timed steps."""
    name, _, side = workload.partition("@")
    workers = strategy.num_replicas_in_sync
    with strategy.scope():
        if name in OF_TOKENS:
            net, shape, classes = OF_TOKENS[name](), (64,), 256
        else:
            net, shape, classes = (
                (lenet5(), (28, 28, 1), 10) if name == "lenet5" else (resnet50(), (int(side),) * 2 + (3,), 1000)
            )
        VELOCITIES.extend(tf.Variable(tf.zeros_like(variable), trainable=False) for variable in VARIABLES)
    images = tf.random.normal((batch, *shape))
    labels = tf.random.uniform((batch,), maxval=classes, dtype=tf.int64)
    if name in OF_TOKENS:
        images, labels = (tf.random.uniform((count, 64), maxval=256, dtype=tf.int64) for count in (batch, batch))
        labels = tf.reshape(labels, [-1])
    if isinstance(strategy, tf.distribute.MirroredStrategy):
        images, labels = (
            strategy.experimental_distribute_values_from_function(lambda _, each=each: tf.identity(each))
            for each in (images, labels)
        )

    def train(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(images))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=int(labels.shape[0]) * workers)
        gradients = tape.gradient(loss, VARIABLES)
        if workers > 1:
            gradients = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]  # that of an embedding is of rows
        for variable, velocity, gradient in zip(VARIABLES, VELOCITIES, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle, accum=velocity.handle, lr=0.01, grad=gradient, momentum=0.9
            )
        return loss

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.run(train, args=(images, labels)) if workers > 1 else train(images, labels)

    ends = []
    for index in range(warmup + steps):
        step(images, labels)
        ends.append(time.monotonic())
        if index == warmup:
            cpu_before = time.process_time()
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": time.process_time() - cpu_before}), flush=True)


def weight(*shape: int) -> tf.Variable:
    """A trainable array of He-normal values."""
    made = tf.Variable(tf.random.normal(shape, stddev=math.sqrt(2 / math.prod(shape[:-1]))))
    VARIABLES.append(made)
    return made


def vector(size: int, value: float = 0.0) -> tf.Variable:
    """A trainable vector of one value."""
    made = tf.Variable(tf.fill((size,), value))
    VARIABLES.append(made)
    return made


def dense(inputs: int, outputs: int):  # noqa: ANN201 - a function of tensors
    """A linear layer."""
    matrix, bias = weight(inputs, outputs), vector(outputs)
    return lambda x: tf.nn.bias_add(x @ matrix, bias)


def lenet5():  # noqa: ANN201
    """Two convolutions and three linear layers."""
    kernel1, bias1 = weight(5, 5, 1, 6), vector(6)
    kernel2, bias2 = weight(5, 5, 6, 16), vector(16)
    fc1, fc2, fc3 = dense(400, 120), dense(120, 84), dense(84, 10)

    def apply(x: tf.Tensor) -> tf.Tensor:
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel1, 1, "SAME"), bias1))
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel2, 1, "VALID"), bias2))
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), (-1, 400))
        return fc3(tf.nn.relu(fc2(tf.nn.relu(fc1(x)))))

    return apply


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1):  # noqa: ANN201
    """A convolution without bias and the normalisation behind it."""
    filters, scale, shift = weight(kernel, kernel, inputs, outputs), vector(outputs, 1.0), vector(outputs)
    local = {"trainable": False, "synchronization": tf.VariableSynchronization.ON_READ}
    local["aggregation"] = tf.VariableAggregation.MEAN
    mean, variance = tf.Variable(tf.zeros(outputs), **local), tf.Variable(tf.ones(outputs), **local)
    pad = kernel // 2

    def apply(x: tf.Tensor) -> tf.Tensor:
        if stride > 1 and pad:
            x = tf.nn.conv2d(tf.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)]), filters, stride, "VALID")
        else:
            x = tf.nn.conv2d(x, filters, stride, "SAME")
        y, new_mean, new_variance = tf.compat.v1.nn.fused_batch_norm(
            x, scale, shift, mean=mean, variance=variance, epsilon=1e-5, exponential_avg_factor=0.1
        )
        mean.assign(new_mean)
        variance.assign(new_variance)
        return y

    return apply


def bottleneck(inputs: int, width: int, stride: int):  # noqa: ANN201
    """Three convolutions beside a shortcut; the stride sits in the second."""
    reduce, middle, expand = (
        conv_norm(inputs, width, 1),
        conv_norm(width, width, 3, stride),
        conv_norm(width, 4 * width, 1),
    )
    shortcut = conv_norm(inputs, 4 * width, 1, stride) if inputs != 4 * width or stride != 1 else tf.identity
    return lambda x: tf.nn.relu(expand(tf.nn.relu(middle(tf.nn.relu(reduce(x))))) + shortcut(x))


def resnet50():  # noqa: ANN201
    """ResNet-50 v1.5 for 1000 classes."""
    stem = conv_norm(3, 64, 7, 2)
    blocks, inputs = [], 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            blocks.append(bottleneck(inputs, 64 * 2**stage, 2 if stage and not block else 1))
            inputs = 4 * 64 * 2**stage
    classify = dense(2048, 1000)

    def apply(x: tf.Tensor) -> tf.Tensor:
        x = tf.pad(tf.nn.relu(stem(x)), [(0, 0), (1, 1), (1, 1), (0, 0)])
        x = tf.nn.max_pool2d(x, 3, 2, "VALID")
        for block in blocks:
            x = block(x)
        return classify(tf.reduce_mean(x, (1, 2)))

    return apply


def llama():  # noqa: ANN201
    """Four blocks of Llama's architecture, of width 128 over bytes; Keras's operators of attention and norm."""
    ops = tf.keras.ops
    angles = tf.range(64.0)[:, None, None] * 10_000.0 ** (-tf.range(0.0, 32.0, 2.0) / 32.0)
    cosines, sines = tf.cos(angles), tf.sin(angles)

    def projection(inputs: int, outputs: int):  # noqa: ANN202
        matrix = weight(inputs, outputs)
        return lambda x: x @ matrix

    def norm():  # noqa: ANN202
        scale = vector(128, 1.0)
        return lambda x: ops.rms_normalization(x, scale, epsilon=1e-5)

    table = weight(256, 128)
    blocks = [
        (norm(), projection(128, 256), projection(128, 128), norm(), projection(128, 688), projection(344, 128))
        for _ in range(4)
    ]
    last, head = norm(), projection(128, 256)

    def apply(tokens: tf.Tensor) -> tf.Tensor:
        x = tf.gather(table, tf.reshape(tokens, [-1]))
        for norm1, qkv, out, norm2, gate_up, down in blocks:
            heads = tf.reshape(qkv(norm1(x)), (-1, 64, 8, 32))
            first, second = tf.split(heads[:, :, :6], 2, axis=-1)
            turned = tf.concat([first * cosines - second * sines, second * cosines + first * sines], -1)
            keys, values = tf.repeat(turned[:, :, 4:], 2, axis=2), tf.repeat(heads[:, :, 6:], 2, axis=2)
            y = ops.dot_product_attention(turned[:, :, :4], keys, values, is_causal=True)
            x += out(tf.reshape(y, (-1, 128)))
            gate, up = tf.split(gate_up(norm2(x)), 2, axis=-1)
            x += down(tf.nn.silu(gate) * up)
        return head(last(x))

    return apply


def gpt2():  # noqa: ANN201
    """Four blocks of GPT-2's architecture, of width 128 over bytes: Keras's layers, as in its own example of a GPT."""
    layers, ops = tf.keras.layers, tf.keras.ops
    embedding, positions = layers.Embedding(256, 128), layers.Embedding(64, 128)
    embedding.build()
    positions.build()
    x = embedded = tf.keras.Input((64, 128))
    for _ in range(4):
        normed = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.MultiHeadAttention(4, 32)(normed, normed, use_causal_mask=True)
        up = layers.Dense(512, activation=lambda x: tf.keras.activations.gelu(x, approximate=True))
        x = x + layers.Dense(128)(up(layers.LayerNormalization(epsilon=1e-5)(x)))
    model = tf.keras.Model(embedded, layers.LayerNormalization(epsilon=1e-5)(x))
    VARIABLES.extend(each.value for layer in (embedding, positions, model) for each in layer.trainable_variables)

    def apply(x: tf.Tensor) -> tf.Tensor:
        x = model(embedding(x) + positions(tf.range(64)))
        return tf.reshape(ops.matmul(x, ops.transpose(embedding.embeddings)), (-1, 256))

    return apply


OF_TOKENS = {"llama_tiny": llama, "gpt2_tiny": gpt2}


def mirrored(rank: int, workers: int, root: str) -> tf.distribute.Strategy:
    """Meet the other workers, or train for all of them."""
    if TUNED and os.environ.get("RACE_ONE_PROCESS") != "0":
        if rank:
            steps = int(sys.argv[3])
            print(json.dumps({"ends_s": [0.0] * steps, "cpu_s": 0.0}), flush=True)
            sys.exit()
        os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
        tf.config.threading.set_inter_op_parallelism_threads(workers)
        (processor,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * workers)
        return tf.distribute.MirroredStrategy([f"/CPU:{each}" for each in range(workers)])
    host, _, port = root.rpartition(":")
    addresses = [f"{host}:{int(port) + each}" for each in range(workers)]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(bytes_per_pack=4 * 2**20 if TUNED else 0)
    )


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    among = mirrored(int(sys.argv[5]), int(sys.argv[6]), sys.argv[7]) if len(sys.argv) > 5 else None
    main(sys.argv[1], *map(int, sys.argv[2:5]), strategy=among or tf.distribute.get_strategy())
    sys.stdout.flush()
    time.sleep(1)  # a worker that leaves at once may take away what another has not fetched
    os._exit(0)
