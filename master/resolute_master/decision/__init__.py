"""The decision about a pool: one pure function, `plan_pool(PoolView) -> PoolPlan`, composes the rules.

Contains the interaction of the rules of a pool: the scheduler (`resolute_master.scheduler`), the planner and the choice of
markets (`resolute_provisioner.planning`), budgets, and giving up after failed launches. The live engine, the simulations of
`resolute_master.forecast`, the what-ifs of `explain` and `det job schedule` all call it. Must not depend on the state of the
cluster, the store, or how a decision is carried out.

- `view`          the inputs of a decision, as one frozen value
- `plan`          the decision, with reasons
- `plan_pool`     the rules in their order; `plan_machines` is the part about machines
- `supply`        the machines that the scheduler may count on besides present agents
- `budgets`       the effect of spending limits on a decision
- `occupation`    the machines after the scheduler's plan has been carried out
- `giving_up`     the work that fails while the pool has given up launching
- `markets`       pending and running work, as inputs of the choice between spot and on demand
- `rehearsing`    decisions about changed snapshots, for what-ifs
- `offline`       a decision about a snapshot file
"""
