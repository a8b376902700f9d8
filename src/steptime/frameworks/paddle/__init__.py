"""PaddlePaddle: one worker, or several under its DataParallel over gloo."""
