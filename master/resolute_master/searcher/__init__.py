"""Search methods: pure functions of their own saved state that decide which trials to create, continue and stop.

Contains hyperparameters, metrics and the order of a search's events. Must not depend on experiments, slots, time or storage: a
trial is a request id here.

- `events`           the events of a search, and its requests
- `records`          the rows of its trials
- `method`           the port of every method, and their common bookkeeping
- `generator`        the search's own random numbers, replayable from two integers
- `hyperparameters`  one point drawn from a search space
- `conditions`       the hyperparameters that exist, given the choices that they depend on
- `random_search`    `single` and `random`
- `grid`             `grid`
- `halving`          `async_halving` and `adaptive_asha`
- `population`       `pbt`
- `proposed`         `optuna`: points that a sampler proposes, outside of the rules
- `methods`          configuration -> method
"""
