"""The entities of the cluster: frozen values, one file per noun.

Contains the nouns and the facts that follow from one of them alone. Must not depend on how they are stored, shown or changed:
no clock, no I/O, no rule about two of them.
"""
