"""`make campaign`: master, agents, tasks, machines and the database are killed with -9, hundreds of times, while work runs.

- `strikes`    what is killed when, as values: a seeded plan
- `points`     points of a program at which a process may be killed: the order is left in a file, the program that reaches the
point carries it
               out and leaves a marker behind (standard library only: it goes into tasks, too)
- `master`, `machine`, `agent`, `trial`  the real programs, composed with edges that know such points
- `database`   the store's connection to PostgreSQL, cut while a commit is on its way
- `work`       experiments that are submitted again and again, by a client that meets dead masters
- `director`   carries the plan out and starts again what is meant to be started again
- `evidence`   reads what is left: API, diaries, the cloud's own files, the checkpoint storage, the database
- `leaks`      pure checks of that; the tasks' diaries are judged by `support.diary_checker`
- `report`     the table of kills by kind and moment, and the verdict

A kill counts as *inside* a commit, a launch, an upload or a checkpoint only if the marker says so: it was written by the
program at that point, immediately before the signal. The programs of the product know nothing of all this.

Knows everything, also the tests' handles (`support`). Nothing imports this package but its tests.
"""
