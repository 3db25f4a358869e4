"""Programs for trying out a cluster: the scripted trial.

Knows the Core API as a user does. Must not know the inside of any other package; the standard library only.
"""
