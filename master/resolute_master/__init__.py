"""The master: the one process that decides.

`domain` says what things are; `lifecycle`, `scheduler` and `searcher` are the pure rules; `engine` is the only writer:
decide, persist, act; `store` keeps; `agents` and `api` are the doors; `observability` watches them all. `app` is the
composition root.

    app -> observability -> {api, agents} -> engine -> {store, lifecycle, scheduler, searcher} -> domain
"""
