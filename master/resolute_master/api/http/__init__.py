"""The HTTP server below the resources: connections, limits, the path of every request, errors and pages.

Knows aiohttp, who calls (`auth`) and what the composition root gives (`context`). Must not know any resource.

- `connections`, `protocol`, `addresses`  connections below HTTP: how many there may be, and where each comes from
- `application`, `serving`                the aiohttp application, its routes, and its context until the master stops
- `outage`                                requests while the database is away
- `call`                                  a route, and the one path of every request: authenticate, find, authorise, handle, answer
- `requests`, `response_headers`, `cross_origin`  what surrounds each request
- `admission`, `bodies`, `form_fields`, `limits`  how much a caller may send and hold open
- `errors`, `paging`, `streaming`         the forms of answers
"""
