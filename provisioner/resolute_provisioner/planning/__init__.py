"""Which machines to add, to move work off and to release: pure functions of frozen values.

Its inputs are machines, offers with their history, pending gangs and the time. Must not depend on any cloud, ledger or clock.

`plan.plan_scale` decides, from `standing` (the use of each machine), `packing` and `purchase` (the placement of gangs, and the
machines to buy, from the `by_size` of offers and beside the present `stock`), `probing` (one request after a refusal), `ending`,
`keep_warm`, `consolidation`, `disruption` and `rebalance` (the releases, and their times). `markets` and `deadline` determine the
markets that work may use; `notes` explains all of it to users.
"""
