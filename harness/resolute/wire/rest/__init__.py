"""Shapes of the REST API, one module a resource; a message is named as in the contract, without its `v1`.

Knows names and types of fields. Must not know where the values come from, and neither HTTP nor the route table.

Enums that the kernel also has are called `Wire...` here, because the contract shows more states than are stored. A
field without a default is always there; `None` is unset. What goes beyond the contract is in `extensions`.
"""
