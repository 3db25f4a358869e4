"""The REST API: one module a resource, each with its table of routes.

Knows HTTP, who is asking, what they may do, and how things look on the wire. Must not know rules, SQL or agents: to
change something it submits a command to the engine, to show something it reads the committed state or the store.

- `app`          `ROUTES`, the whole table; `build_api(context)`: every route in one application
- `doors`        the application that is there from the first moment; `loading` imports the rest when agents have their links
- `context`      what the composition root gives to the API
- `call`         a route, and the one path that every request takes: authenticate, find, authorise, handle, answer
- `auth`         tokens and passwords; `authorise` the one function that says who may do what
- `errors`       the error tree as answers
- `streaming`    lines of JSON, sent as they come
- `opening`      what requests wait for while the master starts; `health` what probes are told at any time
- `connections`  the door below HTTP; `porch` who goes in first through it after a start
- `requests`     what surrounds each request: its id, its log lines; `monitoring` what Prometheus reads
- `render`       domain values as messages
"""
