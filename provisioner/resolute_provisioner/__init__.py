"""Machines on demand: which to add or remove, and the conversation with the clouds that own them.

Knows instances, offers, prices, what refusals and interruptions taught, and how to speak with each cloud.
Must not know jobs, allocations, experiments or SQL: waiting work arrives as opaque gangs, and what happened is
told to a ledger port.

`planning` decides (pure). `offers` prices an offer, `ranking` says what it really costs, `risk` learns of an offer and
`launch_errors` of a pool (pure, too).
`reconcile.Reconciler` carries out what was decided and recorded before, `bootstrap` writes what a machine starts with, and
`clouds` holds the port with its implementations.
"""
