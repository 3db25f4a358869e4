"""The REST API.

Contains HTTP, the caller and its rights, and the form of entities on the wire. Must not depend on rules, SQL or agents. A change
is a command that is submitted to the engine; an answer is read from the committed state or the store.

- `resources`    the endpoints, one module a resource; `app` puts their routes into one table
- `http`         the server below them: connections, limits, the path of each request, errors, pages
- `auth`         the caller, and the one function that decides what a caller may do
- `submission`   what callers submit: decoded and checked
- `reading`      the sources of answers: entities by their ids, lists, series
- `queue`        positions in the queue, and start estimates of waiting jobs
- `render`       domain values as messages

- `app`          `ROUTES`, the whole table; `build_api(context)`: every route in one application
- `context`      the objects that the composition root provides to the API
- `barriers`     barriers of gangs; `contract` the version of the contract
- `rights`, `openapi`  generate the pages about the table of routes
"""
