"""Which machines to add, to move work off and to give back: pure functions of frozen values.

Knows machines, offers with what was learnt of them, waiting gangs and the time. Must not know any cloud, ledger or clock.

`plan.plan_scale` decides, from `standing` (the use of each machine), `packing` and `purchase` (the placement of gangs, and what is
bought, off the `shelves` of offers and beside the `stock` that is there), `probing` (one request after a refusal), `ending`,
`keep_warm`, `consolidation`, `disruption` and `rebalance` (what is given back, and when). `markets` and `deadline` say on which
market work may run; `notes` says all of it to people.
"""
