"""Simulation of one pool under virtual time, with the production scheduler and planner.

Uses the scheduler, the planner and the entities of one pool. Must not depend on the store, the API, a real clock, or its callers:
simulations of a trace (`resolute_sim.twin`) and start estimates (`estimate`).

- `pool`               the state of the pool: pending and running work, its machines, what was learnt of the offers
- `work`               the progress of jobs, and the cost of machines
- `decide`             the decision: `Production` is that of a live master, `LazyProduction` the same without idle planning
- `pool_simulation`    one run of the simulation: arrivals, boots, ends, refusals and interruptions, each followed by one decision
- `search_simulation`  the same for one search, whose method decides which trials continue
- `market`             the capacity that the cloud grants and reclaims
- `accounts`, `usage_book`  spending with its limits, and past usage, as in a live master
- `present`            converts a live pool into a virtual one
- `run_times`          the distribution of run times, from work that has ended
- `join_times`         the distribution of times to join, from machines that have joined
- `estimate`           start estimates for pending work, from many simulations with sampled run times
- `search_estimate`    the expected duration and cost of a search, from a few simulations with random results
- `history`            the past work of a pool, as a trace (`trace_job`)
- `advice`             the port to the simulator that finds settings which save money
"""
