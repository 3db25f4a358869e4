"""The only writer: decide, persist, act.

Contains the order of a cycle: commands -> rules -> scheduler and planner -> one commit -> replies, effects, notifications. Must not
know SQL, HTTP or a cloud's SDK; of clouds it knows the port.

- `cycle`      one cycle as a deterministic function of memory, commands, time and entropy; replay runs the same code
- `engine`     the task that runs cycles: inbox, commit, replies, wake-ups
- `memory`     the working data of a cycle besides the state: pool snapshots, deadlines, the pools to schedule
- `journal`    commands as JSON, digests, snapshots; `replay` replays a journal
- `adoption`   loads ended entities that a command needs from the store
- `reporting`  metrics and logs: stored first, then published
"""
