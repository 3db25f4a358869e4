"""A populated live cluster with three months of a team's work.

    make showcase                 fills the cluster, serves it, and prints its address; Ctrl-C ends it
    python -m showcase --help

Engine, rules, scheduler, planner, reconcilers, agents and their link, API and pages are the production classes, and every
experiment is submitted through the API. As in `resolute_sim`, the cloud, the machines' containers and the training programs are
simulated. Time jumps from timer to timer until it reaches the present; then it runs in real time, and the submissions continue. The
store is SQLite in a temporary directory.

The package may import every other one. No package may import it.

- `loop`       an event loop with virtual time, and real time later
- `cluster`    the master, the cloud, the machines and their interruptions
- `setting`    the configuration: pools, offers and budgets
- `team`       users, workspaces, and the experiments that they submit
- `training`   the simulated training program
- `serving`    the API and the pages
"""
