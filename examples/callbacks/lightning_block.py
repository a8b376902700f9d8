"""Lightning: ``Trainer(callbacks=[RecordedFit("steptime-results/fit")])`` records the steps of ``fit`` alone."""

import lightning

import steptime


class RecordedFit(lightning.pytorch.Callback):
    """Marks the borders of the training loop; a fit that fails keeps its steps."""

    def __init__(self, folder: str) -> None:
        self.block = steptime.attached(folder)

    def on_train_start(self, *_: object) -> None:
        """Begin to record."""
        self.block.__enter__()

    def on_train_end(self, *_: object) -> None:
        """End it."""
        self.block.__exit__()
