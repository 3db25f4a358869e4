"""Schema changes, oldest first under `versions`: `v<number>_<what>.py`.

Forward only: a migration never changes once it is released.

To add one: a new file whose `down_revision` is the newest, `schema.HEAD` set to its number, `tables` changed alike (a
test compares both).
"""
