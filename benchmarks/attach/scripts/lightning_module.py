"""A module of Lightning, where processes that are spawned find it."""

import lightning
import planting
import torch
from planting import Net, finish, loss_of, pause


class Module(lightning.LightningModule):
    """What Lightning trains."""

    def __init__(self):
        super().__init__()
        self.net = Net(slow=False)

    def training_step(self, batch, _):
        planting.rank = self.global_rank
        self.net.slow = self.global_rank == 1
        return loss_of(self.net, batch)

    def validation_step(self, batch, _):
        pause("evaluated batch", planting.EVALUATED_S)
        self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def on_train_end(self):
        finish(None, self.net)
