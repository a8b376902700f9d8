"""transformers: ``Trainer(..., callbacks=[RecordedLoop("steptime-results/loop")])`` records ``train`` alone."""

import transformers

import steptime


class RecordedLoop(transformers.TrainerCallback):
    """Marks the borders of the training loop; a loop that fails keeps its steps."""

    def __init__(self, folder: str) -> None:
        self.block = steptime.attached(folder)

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Begin to record."""
        self.block.__enter__()

    def on_train_end(self, *_: object, **__: object) -> None:
        """End it."""
        self.block.__exit__()
