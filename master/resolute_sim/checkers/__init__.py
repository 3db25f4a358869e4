"""What must hold in every world, whatever happens: five families of rules, each over plain facts.

- `safety`     no slot used twice, gangs whole, one run of a trial at a time, only legal state transitions
- `reference`  every pointer has a target, every order is in the outbox, derived values equal their sources
- `resume`     each run resumes exactly from the last checkpoint
- `economy`    no needless launch, no unrecorded payment, no unused machine
- `spending`, `prices`, `deadlines`  of that family: limits are kept, and the ledger equals the cloud's own bill;
               machines are booked at the reported prices; the choice of a market never misses a deadline that could be kept
- `liveness`   everything settles

A checker must not be weakened to let a world pass: either the code is wrong, or the rule is, and then its docstring says why.
"""
