"""`make hostile`: malicious agents, callers and tasks attack a real master with running work.

- `cluster`    the master, its machines and users; every configuration contains seeded secrets; some experiments run, others have
ended
- `attackers`  the kinds of attackers, and their tokens
- `values`     ids, texts, bodies and their mutations, drawn from a seed
- `calls`      requests of the REST API, each with the expected permission
- `garbage`    bytes that are not a request
- `frames`     hellos and messages of the agent link
- `sending`    sends requests, bytes and frames to the master at a bounded rate, and returns the responses
- `task`       a task that attacks from within (standard library only: it runs in a container)
- `digest`     the state that the attackers may not change, read as an administrator
- `findings`   pure: the faults, and the table

The product contains no code for this package. The package may import every other one, and the tests' `support`. Only its tests
import it.
"""
