"""A trial whose hyperparameters are no good, and which says so."""

from determined import core

with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    context.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
    print("told", flush=True)
