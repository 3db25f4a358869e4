"""Training of PyTorch models: a trial class, and a Trainer that can stop after any step and resume bit for bit.

Uses torch and the Core API. Must not depend on masters, schedulers or storage formats; nothing else in the harness imports
torch.

- `trial`    the classes that users subclass: `PyTorchTrial`, `PyTorchCallback`, `Reducer`
- `context`  the inputs of a trial: `PyTorchTrialContext`, `LRScheduler`
- `data`     `DataLoader`: batches whose order and randomness are functions of seed, epoch and position
- `rng`      random states as plain data
- `state`    the contents of a checkpoint
- `trainer`  `init`, `Trainer`
- `run`      `python -m resolute.pytorch.run module:Class`, for trial classes named as entrypoint
"""

from resolute.pytorch.context import LRScheduler, PyTorchTrialContext
from resolute.pytorch.data import DataLoader
from resolute.pytorch.settings import Batch, Epoch, FitSettings, Records, TrainUnit
from resolute.pytorch.state import load_model_weights
from resolute.pytorch.trainer import FitResult, Trainer, init
from resolute.pytorch.trial import PyTorchCallback, PyTorchTrial, Reducer

__all__ = [
    "Batch",
    "DataLoader",
    "Epoch",
    "FitResult",
    "FitSettings",
    "LRScheduler",
    "PyTorchCallback",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Records",
    "Reducer",
    "TrainUnit",
    "Trainer",
    "init",
    "load_model_weights",
]
