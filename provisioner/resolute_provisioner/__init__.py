"""Machines on demand: which to add or remove, and the conversation with the clouds that own them.

Knows instances, offers, prices, what refusals and interruptions taught, and how to speak with each cloud.
Must not know jobs, allocations, experiments or SQL: waiting work arrives as opaque gangs, and what happened is
told to a ledger port.

`plan.plan_scale` decides (pure), from `standing` (what each machine is good for), `packing` and `purchase` (who runs where,
and what is bought), `probing` (one request after a refusal), `ending`, `consolidation` and `disruption` (what is given back,
and when). `offers` prices an offer, `ranking` says what it really costs, `risk` learns (all pure).
`reconcile.Reconciler` carries out what was decided and recorded before, and `clouds` holds the port with its
implementations.
"""
