"""The legal state transitions, and their consequences.

Contains the states and their consequences, as pure functions of a working copy of the cluster (`step.Step`): a command goes in,
changed values, effects for the outbox and texts for users come out. Must not depend on asyncio, the store, a clock or a log.

- `cluster`      the state of the cluster, with its indexes
- `step`         a working copy: reads through to the cluster, collects what changed
- `allocation`   one allocation by itself: (allocation, event) -> (allocation, effects)
- `queue`        places in the queue that are set by hand
- `capacity`     whether a request is feasible in a pool
- `successors`   holds replacement machines for the next run of interrupted work
- `allocations`, `trials`, `log_policies`, `experiments`, `jobs`, `workspaces`, `agents`,
  `instances`, `reports`, `users`   the consequences of a change for other entities
- `apply`        command -> function
- `deadlines`    timeouts: events that are due without a message
- `ledger`       the use of the paid time of each slot; `cost` the same by user, workspace and experiment
- `budget`       when a limit is reached, from an account's own value; `spending` updates the accounts and ends work at a limit
"""
