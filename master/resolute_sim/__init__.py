"""The digital twin: production code under virtual time, and checkers that observe every step of it.

    python -m resolute_sim --seed 7          the events of one world
    python -m resolute_sim --seeds 2000      many worlds; a failure names its seed and the broken rule

Knows everything: engine, rules, scheduler, planner, reconciler, agent and link are the production classes; only
disks, wires, clouds and training programs are simulated. Only tests may import it, except
`twin`, the simulation of a pool on a trace, which `det simulate` runs.

- `loop`       time that jumps to the next timer
- `link`       the wire between agents and master, with delays and cuts
- `master`     one master process: engine, hub and reconcilers over tables that outlive it
- `machine`    one machine: the real agent with the scripted runtime
- `training`   a task's behaviour, as with our harness; `event_log` is the tasks' own log of it
- `workload`   seeded experiments; `fault_plan` seeded faults; `injector` carries them out; `money` limits and budgets of users
- `checkers`   safety, reference, resume, economy (with `spending`, from the cloud's own bill) and liveness
- `world`      all of it together; `simulation` runs one seed to its result; `checks` calls the checkers
"""
