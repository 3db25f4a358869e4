"""The REST API.

Knows HTTP, who calls, what a caller may do, and the form of entities on the wire. Must not know rules, SQL or agents: to
change something it submits a command to the engine, to show something it reads the committed state or the store.

- `resources`    the endpoints, one module a resource; `app` puts their routes into one table
- `http`         the server below them: connections, limits, the path of each request, errors, pages
- `auth`         who calls, and the one function that says what a caller may do
- `submission`   what callers submit: decoded and checked
- `reading`      what answers are read from: entities by their ids, lists, series
- `queue`        positions in the queue, and when waiting jobs will start
- `render`       domain values as messages

- `app`          `ROUTES`, the whole table; `build_api(context)`: every route in one application
- `context`      what the composition root gives to the API
- `barriers`     barriers of gangs; `contract` the version of the contract
- `rights`, `openapi`  write the pages about the table of routes
"""
