"""The caller, and what it may do.

Contains tokens, passwords, users and the owner of an entity. Must not depend on any resource.

- `authenticate`    tokens and passwords
- `authorise`       the one function that decides whether a caller may do something
- `ownership`       the owner of an entity, for that function
- `login_attempts`, `fair_turns`  limits of failed logins and of concurrent password hashes
- `cross_site`      requests that a page of another site makes a browser send
"""
