"""The endpoints: one module a resource of the API, each with its handlers and its table `ROUTES`.

The modules have the names of the contract's nouns; additions to the contract are in `docs/differences.md`. They use the other
packages of the API, and the engine and the store, which a handler calls. Only `api.app` puts a module into the table.
"""
