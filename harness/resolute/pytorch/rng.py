"""Random states of all generators that user code draws from: captured, restored, and set apart for a while."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

_numpy: ModuleType | None
try:
    import numpy

    _numpy = numpy
except ImportError:  # torch works without it
    _numpy = None

RngState = dict[str, Any]
"""Plain data and tensors only, so that it can be loaded with `weights_only=True`."""


def mixed(seed: int, *parts: int | str) -> int:
    """A seed of 63 bits that depends on all of its arguments, the same on every machine."""
    text = ":".join([str(seed), *(str(part) for part in parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def seed_all(seed: int) -> None:
    """Python, NumPy and torch (every device) from one seed."""
    random.seed(seed)
    if _numpy is not None:
        _numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture(*, devices: bool = True) -> RngState:
    """All states. `devices=False` leaves out the GPUs, which data loading does not draw from."""
    version, internal, gauss = random.getstate()
    state: RngState = {"python": [version, list(internal), gauss], "torch": torch.get_rng_state()}
    if _numpy is not None:
        name, keys, position, has_gauss, cached = _numpy.random.get_state(legacy=True)
        state["numpy"] = [str(name), keys.tolist(), int(position), int(has_gauss), float(cached)]
    if devices and torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: RngState) -> None:
    """Put captured states back. States of devices that this machine lacks are left out."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"].cpu())
    if _numpy is not None and "numpy" in state:
        name, keys, position, has_gauss, cached = state["numpy"]
        _numpy.random.set_state((name, _numpy.array(keys, dtype=_numpy.uint32), position, has_gauss, cached))
    for index, device_state in enumerate(state.get("cuda", [])):
        if index < torch.cuda.device_count():
            torch.cuda.set_rng_state(device_state.cpu(), index)


@contextmanager
def apart(seed: int, *, devices: bool = False) -> Iterator[None]:
    """Draw from generators seeded for this block alone; afterwards everything is as before."""
    before = _raw(devices)
    random.seed(seed)
    if _numpy is not None:
        _numpy.random.seed(seed % 2**32)
    if devices:
        torch.manual_seed(seed)
    else:
        # Not torch.manual_seed: it touches the GPUs, which forked workers must not.
        torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        _put_back(before)


def _raw(devices: bool) -> tuple[Any, Any, torch.Tensor, list[torch.Tensor] | None]:
    numpy_state = None if _numpy is None else _numpy.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if devices and torch.cuda.is_available() else None
    return random.getstate(), numpy_state, torch.get_rng_state(), cuda


def _put_back(raw: tuple[Any, Any, torch.Tensor, list[torch.Tensor] | None]) -> None:
    python_state, numpy_state, torch_state, cuda = raw
    random.setstate(python_state)
    if _numpy is not None and numpy_state is not None:
        _numpy.random.set_state(numpy_state)
    torch.set_rng_state(torch_state)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
