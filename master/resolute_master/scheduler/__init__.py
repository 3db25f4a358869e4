"""Placement, preemption and their explanations.

Its input is one frozen value of agents, jobs, allocations and available machines: `schedule(PoolSnapshot) -> Plan`.
Must not depend on asyncio, the store, a clock or clouds. Nothing here has side effects, and the same snapshot always gives the
same plan.

- `sorted_map`   the persistent map that snapshots are made of
- `order`        the keys that order pending and running allocations
- `shares`       what each group of a fair-share pool holds
- `rooms`        free slots of agents, and what allocations take of them
- `policy`       from the configuration to the policy of a pool
- `snapshot`     everything that a decision may read; an update costs the size of the change
- `plan`, `outcome`   the decision, and further findings of the pass
- `schedule`     snapshot -> plan, by the pool's kind of scheduling
- `priority`, `fair_share`   the order of pending allocations, and the choice of victims; their docstrings state the rules
- `balance`      what the groups of a fair-share pool hold during a pass, and the victims there
- `placing`      the steps for one pending allocation
- `fitting`      the agents during one pass: free slots, vacating slots, holds
- `machines`     starting machines, and those that could be launched, during one pass
- `eviction`     the choice of a set of victims
- `unused`       machines that have just joined, and the allocations they were launched for
- `demand`       the pending gangs that need machines
- `explain`      why a job waits, on request; `reasons` are its sentences, `explain_message` its form on the wire
- `rehearsal`    decisions about changed snapshots, a bounded number of them
- `blockers`     what blocks a job; `what_if` what would start it: both by rehearsal
- `snapshot_format`, `snapshot_file`, `snapshot_edit`   a snapshot as a file: its keys, reading and writing, changes by name
- `job_states`   the job queue as users see it
"""
