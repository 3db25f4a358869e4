"""`make campaign`: kills master, agents, tasks, machines and the database with SIGKILL, hundreds of times, while experiments run.

- `kill_plan`    the seeded plan of kills
- `points`     points of a program at which a process may be killed. A file contains the order; the program that reaches the point
               executes it and writes a marker (standard library only, because tasks import it)
- `master`, `machine`, `agent`, `trial`  the real programs, composed with edges that contain such points
- `database`   the store's connection to PostgreSQL, which is cut during a commit
- `work`       a client that submits experiments repeatedly, also while the master is down
- `director`   executes the plan, and restarts the master and the database server
- `evidence`   reads the results: API, event logs, the cloud's files, the checkpoint storage, the database
- `leaks`      pure checks of the results; `support.event_log_checker` checks the tasks' event logs
- `report`     the table of kills by kind and moment, and the result

A kill counts as *inside* a commit, a launch, an upload or a checkpoint only if the marker says so: the program writes it at that
point, immediately before the signal. The product contains no code for this package.

The package may import every other one, and the tests' `support`. Only its tests import it.
"""
