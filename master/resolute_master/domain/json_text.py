"""JSON text of free-form values: keys sorted, and numbers that JSON cannot spell as the words `NaN`, `Infinity` and `-Infinity`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

_strict_writer = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
"""Raises for numbers that JSON cannot spell."""

sorted_writer = msgspec.json.Encoder(order="deterministic")
"""Ten times as fast, and writes null for such numbers."""


def canonical(plain: Any) -> bytes:
    """The one text of a JSON-like value. Half of a surrogate pair, which UTF-8 has no form for, becomes a question mark.

    Raises `TypeError` for a value that has no form in JSON.
    """
    try:
        text = sorted_writer.encode(plain)
    except UnicodeEncodeError:
        return sorted_writer.encode(msgspec.json.decode(encode_plain(plain)))
    # It need not be searched for numbers that JSON cannot spell when it holds no null.
    if b"null" in text:
        try:
            _strict_writer.encode(plain)
        except ValueError:
            text = sorted_writer.encode(spell_not_finite(plain))
    return text


def encode_plain(plain: Any) -> bytes:
    """JSON text of a JSON-like value, by sorted keys."""
    try:
        text = _strict_writer.encode(plain)
    except ValueError:
        text = _strict_writer.encode(spell_not_finite(plain))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def spell_not_finite(plain: Any) -> Any:
    """The same value with NaN and the infinities as strings; what is finite is left as it is."""
    if isinstance(plain, float):
        return number_out(plain) if not math.isfinite(plain) else plain
    if isinstance(plain, Mapping):
        return {str(key): spell_not_finite(value) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [spell_not_finite(value) for value in plain]
    return plain


def number_out(value: Any) -> Any:
    """A float, so that 1 and 1.0 are written alike; a word for values that JSON cannot represent."""
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
