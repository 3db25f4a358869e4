"""What things are: frozen values, one file per noun.

Knows the nouns and the facts derived from one of them alone. Must not know how they are stored, shown or moved: no clock,
no I/O, no rule that looks at two of them.
"""
