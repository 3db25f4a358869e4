"""The sources of answers: the committed state, the store and the master's own log.

Knows the engine's state and the store. Must not know any resource.
"""
