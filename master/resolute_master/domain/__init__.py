"""The entities of the cluster: frozen values, one file per noun.

Knows the nouns and the facts that follow from one of them alone. Must not know how they are stored, shown or changed: no clock,
no I/O, no rule about two of them.
"""
