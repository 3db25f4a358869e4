"""One pool under virtual time: the production scheduler and planner decide, and what follows is played.

Knows the scheduler, the planner and the entities of one pool. Must not know the store, the API, a real clock, or what it is
played for: rehearsals on a trace (`resolute_sim.twin`) and estimates of starts (`estimate`) both drive it.

- `pool`       the pool's state: what waits and runs, its machines, what was learnt of the offers
- `decide`     who decides: `Production` is what a live master does in one cycle, `Sparing` the same without idle planning
- `course`     time: arrivals, boots, ends, refusals and interruptions, each followed by one decision
- `market`     what the cloud gives and takes
- `run_times`  what is known of how long work runs, from what has ended
- `join_times` what is known of how long machines take to join, from those that have
- `estimate`   when what waits will start, from many courses on sampled run times
"""
