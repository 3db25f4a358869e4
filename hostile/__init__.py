"""`make hostile`: agents, callers and tasks that mean harm attack a real master with work in it, and get nothing.

- `cluster`    the master, its machines and users; secrets are planted in every configuration; some work is over, some runs
- `attackers`  the kinds of attackers, and their tokens
- `values`     what is sent: ids, texts, bodies and their mutations, drawn from a seed
- `calls`      requests of the REST API, each with whether the table of calls refuses it
- `garbage`    bytes that are no request
- `frames`     hellos and messages of the agent link
- `sending`    carries requests, bytes and frames to the master, at a bounded rate, and returns what was answered
- `task`       a task that attacks from within (standard library only: it runs in a container)
- `digest`     what the attackers may not change, as an administrator reads it
- `verdict`    pure: what of all that is a fault, and the table

The programs of the product know nothing of all this. Knows everything, also the tests' handles (`support`). Nothing imports this
package but its tests.
"""
