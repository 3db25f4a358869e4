"""What is decided about a pool: one pure function, `plan_pool(PoolView) -> PoolPlan`, composes the rules.

Knows how the rules of a pool work together: the scheduler (`resolute_master.scheduler`), the planner and the choice of markets
(`resolute_provisioner.planning`), budgets, and giving up after failed launches. The live engine, the simulations of
`resolute_master.foresight`, the what-ifs of `explain` and `det job schedule` all call it. Must not know the state of the
cluster, the store, or how a decision is carried out.

- `view`          what a decision may look at, as one frozen value
- `plan`          what was decided, with reasons
- `plan_pool`     the rules in their order; `plan_machines` is the part about machines
- `supply`        what the scheduler may count on besides present agents
- `budgets`       what limits on spending leave of a decision
- `occupation`    the machines once the scheduler's plan has been carried out
- `giving_up`     which work fails while the pool has given up launching
- `markets`       what waits and runs, as the choice between spot and on demand sees it
- `rehearsing`    decisions about changed snapshots, for what-ifs
- `offline`       a decision about a snapshot file
"""
