"""One module a noun, each with a `NOUN`: the verbs of `det NOUN`, and their calls.

Modules are imported on demand. None of them formats anything itself.
"""
