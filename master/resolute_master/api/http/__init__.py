"""The HTTP server below the resources: connections, limits, the path of every request, errors and pages.

Uses aiohttp, the caller (`auth`) and the objects that the composition root provides (`context`). Must not depend on any resource.

- `connections`, `protocol`, `addresses`  connections below HTTP: their limits, and the address of each client
- `application`, `serving`                the aiohttp application, its routes, and its context until the master stops
- `outage`                                requests while the database is unavailable
- `call`                                  a route, and the path of every request: authenticate, find, authorise, handle, answer
- `requests`, `response_headers`, `cross_origin`  common processing of each request
- `admission`, `bodies`, `form_fields`, `limits`  limits of a caller's requests and bodies
- `errors`, `paging`, `streaming`         the forms of answers
"""
