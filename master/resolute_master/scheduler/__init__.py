"""Who runs where, and why not.

Knows agents, jobs, allocations and the machines that can be had, as one frozen value: `schedule(PoolSnapshot) -> Plan`.
Must not know asyncio, the store, a clock or clouds; nothing here acts, and the same snapshot always gives the same plan.

- `sorted_map`   the persistent map that snapshots are made of
- `order`        the keys by which the waiting and the running are ordered
- `shares`       who holds how much of a fair-share pool
- `rooms`        what agents have to give, and what allocations take of them
- `policy`       from the configuration to how a pool decides
- `snapshot`     everything that a decision may look at, updated in the size of the change
- `plan`, `outcome`   what was decided, and what the pass found out beside it
- `schedule`     snapshot -> plan, by the pool's kind of scheduling
- `priority`, `fair_share`   who is offered something next, and who must leave for whom; the rules are the modules' texts
- `balance`      what the groups of a fair-share pool hold during a pass, and who must leave for whom there
- `placing`      what can be done for one that is offered something
- `fitting`      the agents during one pass: room now, room that others are leaving, what is held for whom
- `machines`     machines on the way, and those that could be launched, during one pass
- `eviction`     which of those that must leave
- `unused`       machines that have just joined, and whom they were launched for
- `demand`       the gangs that wait for machines
- `explain`      why a job waits, when somebody asks; `reasons` are its sentences, `explain_message` its form on the wire
- `rehearsal`    decisions about changed snapshots, a bounded number of them
- `blockers`     what is in a job's way; `what_if` what would start it: both by rehearsal
- `snapshot_format`, `snapshot_file`, `snapshot_edit`   a snapshot as a file: its keys, reading and writing, changes by name
- `job_states`   the job queue as people see it
"""
