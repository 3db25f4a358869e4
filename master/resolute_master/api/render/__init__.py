"""Domain values as messages of the wire: pure functions, one module a noun.

Knows the form of each message. Must not know the engine, nor how anything is stored: rows from the store are arguments.
"""
