"""Which trials next: search methods as pure functions of their own saved state.

Knows hyperparameters, metrics and the order of a search's events. Must not know experiments, slots, time or storage: a trial is a
request id here.

- `events`           the events of a search, and its requests
- `records`          where it keeps the rows of its trials
- `method`           the port of every method, and the bookkeeping that all of them share
- `generator`        the search's own random numbers, replayable from two integers
- `hyperparameters`  one point drawn from a search space
- `conditions`       which hyperparameters are there, given the choices that they depend on
- `random_search`    `single` and `random`
- `grid`             `grid`
- `halving`          `async_halving` and `adaptive_asha`
- `methods`          configuration -> method
"""
