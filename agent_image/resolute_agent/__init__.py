"""The node agent: containers and devices on one machine.

Runs, watches, adopts and ends containers, lists the slots of the machine, and reports to a master over a link that may break.
Must not depend on jobs, experiments, users or scheduling.

- `model`       the values of its decisions
- `state`       pure: (state of the agent, event) -> (next state, effects)
- `agent`       the loop that feeds events into `state` and carries its effects out, over injected ports
- `link`        the port to the master, its framing and back-off; `websocket` is the real one
- `runtimes`    how containers are run: `process`, `docker`, `scripted`
- `supervisor`  the small process that owns one task and outlives the agent; `kernel` is its interface to Linux
- `forkserver`  the ready process that supervisors and launchers are forked from
- `logs`        task output to log batches
- `devices`     slots of this machine, listed by the vendors' tools
- `notices`     detection of interruption notices of this machine
- `memory`      the state that survives a restart of the agent
- `machine`     the init process of one machine on the local cloud
"""

from __future__ import annotations
