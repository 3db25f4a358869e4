"""Domain values as messages of the wire: pure functions, one module a noun.

Knows how a thing is shown. Must not know the engine, nor how anything is stored: rows that
the store has found are arguments.
"""
