"""What must hold in every world, whatever happens: five families of rules, each over plain facts.

- `safety`     no slot used twice, gangs whole, one run of a trial at a time, states only move as they may
- `reference`  every pointer has a target, every order is in the outbox, what is derived equals what it is derived from
- `resume`     each run goes on exactly where the last checkpoint left off
- `economy`    nothing is launched that is not needed, paid that is not recorded, or kept that is not used
- `spending`   of that family: limits are kept, and the books equal the cloud's own bill
- `liveness`   everything settles

A checker must not be weakened to let a world pass: either the code is wrong or the rule is, and then it says why.
"""
