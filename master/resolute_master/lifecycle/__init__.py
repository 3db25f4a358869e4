"""Which moves are legal, and what follows from each.

Knows the states and their consequences, as pure functions of a working copy of the cluster (`step.Step`): a command goes in,
changed values, effects for the outbox and words for people come out. Must not know asyncio, the store, a clock or a log.

- `cluster`      the state of the cluster, with its indexes
- `step`         a working copy: reads through to the cluster, collects what changed
- `allocation`   one allocation by itself: (allocation, event) -> (allocation, effects)
- `queue`        a place in a line of jobs that is given by hand
- `capacity`     whether a pool can ever hold what is asked of it
- `successors`   machines that come for work that has to go on elsewhere are for its next run
- `allocations`, `trials`, `log_policies`, `experiments`, `jobs`, `workspaces`, `agents`,
  `instances`, `reports`, `users`   what a change of one means for the others
- `apply`        command -> function
- `deadlines`    timeouts: events that are due without a message
- `ledger`       the use of the paid time of each slot; `cost` the same by user, workspace and experiment
- `budget`       when a limit is reached, from an account's own value; `spending` books the accounts and ends what reaches one
"""
