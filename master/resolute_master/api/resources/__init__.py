"""The endpoints: one module a resource of the API, each with its handlers and its table `ROUTES`.

The modules have the names of the contract's nouns; what goes beyond the contract is in `docs/differences.md`. Knows the other rooms
of the API, and what a handler asks of the engine and of the store. Only `api.app` puts a module into the table.
"""
