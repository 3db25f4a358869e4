"""`make demo`: an elastic cluster on this machine trains a real model through a refusal, a notice and a plain loss.

- `story`      what is going to happen, as values: configuration, submission, interruptions
- `folder`     where everything of one run lies
- `cluster`    starting and ending it, and what a user would type
- `pictures`   what the API says at one moment; `view` draws it
- `director`   when which machine is taken away
- `reference`  the same training without a cluster and without interruptions (a process of its own)
- `verify`     the judge (a process of its own): reads the API with a client of its own, then the files that were left and
               the list of processes; `claims` are its checks, `evidence` what it has read

Knows the command line, the client and the programs as a user does. `verify`, `claims` and `evidence` must not import anything
of the project, so that they believe nothing but what they read. Nothing imports this package.
"""
