"""Images of digits, drawn here: nothing is downloaded, and the same seed gives the same pictures on every machine."""

from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

# Each digit as seven rows of five pixels.
GLYPHS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111",
    "11110 00001 00001 01110 00001 00001 11110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
SIDE = 28


def glyph(digit: int) -> torch.Tensor:
    """A digit as a 7x5 tensor of zeros and ones."""
    return torch.tensor([[float(pixel) for pixel in row] for row in GLYPHS[digit].split()])


def digits(count: int, seed: int, noise: float = 0.25) -> TensorDataset:
    """`count` pictures (1x28x28) and their digits: random size, place, brightness and noise."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=draw)
    images = torch.zeros(count, 1, SIDE, SIDE)
    # Two sizes, so that the place of a stroke alone does not give the digit away.
    enlarged = {
        scale: [glyph(d).repeat_interleave(scale, 0).repeat_interleave(scale, 1) for d in range(10)] for scale in (2, 3)
    }
    sizes = torch.randint(2, 4, (count,), generator=draw)
    places = torch.rand(count, 2, generator=draw)
    brightness = 0.5 + 0.5 * torch.rand(count, generator=draw)
    for index in range(count):
        shape = enlarged[int(sizes[index])][int(labels[index])]
        height, width = shape.shape
        top = int(places[index, 0] * (SIDE - height + 1))
        left = int(places[index, 1] * (SIDE - width + 1))
        images[index, 0, top : top + height, left : left + width] = shape * brightness[index]
    images += noise * torch.randn(images.shape, generator=draw)
    return TensorDataset(images, labels)
