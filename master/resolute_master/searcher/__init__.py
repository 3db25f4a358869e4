"""Which trials next: search methods as pure functions of their own saved state.

Knows hyperparameters, metrics and the order of a search's events. Must not know experiments, slots, time or storage: a trial is a
request id here.

- `base`             events in, actions out, and the bookkeeping that every method shares
- `generator`        the search's own random numbers, replayable from two integers
- `hyperparameters`  one point drawn from a search space
- `random_search`    `single` and `random`
- `methods`          configuration -> method
"""
