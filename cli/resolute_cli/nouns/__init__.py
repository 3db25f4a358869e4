"""One module a noun, each with a `NOUN`: what `det NOUN` can do and what it calls.

Modules are imported when their noun is asked for. None of them formats anything itself.
"""
