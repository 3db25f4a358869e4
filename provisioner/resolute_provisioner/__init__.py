"""Machines on demand: which to add or remove, and the calls to the clouds that own them.

Contains instances, offers, prices, the history of refusals and interruptions, and the API of each cloud. Must not depend on jobs,
allocations, experiments or SQL: pending work arrives as opaque gangs, and results go to a ledger port.

`planning` decides (pure). `offers` prices an offer, `ranking` computes its expected price, `risk` records the history of an offer
and `launch_errors` that of a pool (pure, too). `reconcile.Reconciler` carries out recorded decisions, `bootstrap` renders the boot
data of a machine, and `clouds` holds the port with its implementations.
"""
