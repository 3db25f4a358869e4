"""The master: the one process that decides.

`domain` says what things are; `lifecycle`, `scheduler` and `searcher` are the pure rules; `engine` is the only writer:
decide, persist, act; `store` keeps; `agents` and `api` are the doors. `app` is the composition root.

    app -> {api, agents} -> engine -> {store, lifecycle, scheduler, searcher} -> domain
"""
