"""Shapes of the REST API, one module a resource; a message is named as in the contract, without its `v1`.

Contains names and types of fields. Must not depend on the source of the values, on HTTP or on the route table.

Enums that the kernel also has are called `Wire...` here, because the contract has more states than are stored. A
field without a default is always present; `None` is unset.

`scripts/rest_shapes.py` generates the modules of the contract; a test compares them. Additions to the contract are written by hand:
`costs`, `extensions`, `offers`, `readiness`, `searching`, `why`, and the hash in `passwords`.
"""
