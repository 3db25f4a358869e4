"""Who calls, and what they may do.

Knows tokens, passwords, users and who owns an entity. Must not know any resource.

- `authenticate`    tokens and passwords
- `authorise`       the one function that decides whether a caller may do something
- `ownership`       the owner of an entity, for that function
- `login_attempts`, `fair_turns`  limits of failed logins and of password hashes at once
- `cross_site`      changes that a page of another site makes a browser send
"""
