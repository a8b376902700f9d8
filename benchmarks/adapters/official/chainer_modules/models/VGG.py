"""ResNet-50 under the name of the model that the example trains."""

import chainer
import chainer.functions as F  # noqa: N812 - the name that every user of Chainer gives it
from chainer_plain import ResNet50


class VGG(chainer.Chain):
    """The plain loop's ResNet-50 without its loss, which the example adds."""

    def __init__(self, _):
        super().__init__()
        with self.init_scope():
            self.network = ResNet50()

    def forward(self, x):
        """Return the scores of a batch."""
        network = self.network
        h = F.max_pooling_2d(F.relu(network.norm1(network.conv1(x))), 3, stride=2, pad=1, cover_all=False)
        return network.fc(F.mean(network.blocks(h), axis=(2, 3)))
