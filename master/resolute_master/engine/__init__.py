"""The only writer: decide, persist, act.

Knows the order of a cycle: commands -> rules -> scheduler and planner -> one commit -> replies, effects, news. Must not know
SQL, HTTP or a cloud's SDK; of clouds it knows the port.

- `cycle`      one cycle as a deterministic function of memory, commands, time and entropy; replay runs the same code
- `engine`     the task around it: inbox, commit, replies, wake-ups
- `memory`     what a cycle works on besides the state: pool snapshots, deadlines, which pools to look at
- `journal`    commands as JSON, digests, snapshots; `replay` runs a journal again
- `adoption`   ended things that a command needs are taken up again from the store
- `reporting`  metrics and logs: durable first, then known
"""
