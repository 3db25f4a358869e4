"""The digital twin: production code under virtual time, and checkers that watch every step of it.

    python -m resolute_sim --seed 7          the story of one world
    python -m resolute_sim --seeds 2000      many worlds; a failure names its seed and the broken rule

Knows everything: engine, rules, scheduler, planner, reconciler, agent and link are the production classes; only what
would be a disk, a wire, a cloud or a training program is played here. Must not be imported by anything but tests; but for
`twin`, a pool on a trace, which `det simulate` runs.

- `loop`       time that jumps to the next timer
- `link`       the wire between agents and master, with delays and cuts
- `master`     one master process: engine, hub and reconcilers over tables that outlive it
- `machine`    one machine: the real agent with the scripted runtime
- `training`   what a task does, as our harness would do it; `diary` is what the tasks wrote down themselves
- `workload`   seeded experiments; `weather` seeded faults; `mischief` carries them out; `money` what users mind of costs
- `checkers`   safety, reference, resume, economy (with `spending`, from the cloud's own bill) and liveness
- `world`      all of it together; `simulation` runs one seed to its verdict
"""
