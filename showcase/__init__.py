"""A populated cluster to look at: three months of work of a team of eight, then live.

    make showcase                 fills it, serves it, and prints where; Ctrl-C ends it
    python -m showcase --help

Engine, rules, scheduler, planner, reconcilers, agents and their link, API and pages are the production classes, and every
experiment is submitted by the call of the API. Played are, as in `resolute_sim`, the cloud, the machines' containers and what a
training program does. Time jumps from timer to timer until it has caught up with the clock on the wall; from then on it passes as
it does, and the team goes on working. The store is SQLite in a directory that ends with it.

Knows everything. Must not be imported by anything.

- `loop`       time that jumps first and passes later
- `cluster`    the master, the cloud, the machines and what befalls them
- `setting`    the configuration: pools, offers and budgets
- `team`       who works on what: users, workspaces, and the experiments that they submit
- `training`   what a task does
- `serving`    the API and the pages over it
"""
