"""The master: the one process that decides.

`domain` defines the entities; `lifecycle`, `scheduler` and `searcher` are the pure rules; `engine` is the only writer:
decide, persist, act; `store` persists; `agents` and `api` are the endpoints; `observability` observes all of them. `app` is the
composition root.

    app -> observability -> {api, agents} -> engine -> {store, lifecycle, scheduler, searcher} -> domain
"""
