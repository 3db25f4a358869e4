"""Domain values as messages of the wire: pure functions, one module a noun.

Knows how a thing is shown. Must not know the store or the engine: what else is needed is an argument.
"""
