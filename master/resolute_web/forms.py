"""What a form of our pages sends, and how it becomes a call of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from resolute.wire.codec import to_wire
from resolute_master.api.http.call import Call, without_nul
from resolute_master.api.http.form_fields import form_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Fields by name, each with all its values."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Empty when it was not sent."""
        return next(iter(self.fields.get(name, ())), "")


async def read_form(call: Call) -> Form:
    """Raises `InvalidInput` for a body that is no form, and for a field with NUL."""
    fields = await form_fields(call.request.headers.get("Content-Type", ""), await call.raw())
    for name, values in fields.items():
        for value in values:
            without_nul(name, value)
    return Form(fields=fields)


def asking(call: Call, message: object) -> Call:
    """The same caller with this message as the body: for a handler of the API, so that a form goes through the same checks."""
    return Call(call.api, call.request, call.known_caller, call.body_limit, msgspec.json.encode(to_wire(message)))
