"""`make demo`: a local elastic cluster trains a real model through a refusal, a notice and a loss without notice.

- `scenario`      the script as values: configuration, submission, interruptions
- `folder`     the paths of one run's files
- `cluster`    starts and ends the cluster, and runs a user's commands
- `pictures`   the cluster's state in the API at one moment; `view` draws it
- `director`   decides which machine is interrupted, and when
- `reference`  the same training without a cluster and without interruptions (a separate process)
- `verify`     checks the run in a separate process: it reads the API with its own client, then the files and the list of
               processes; `claims` contains the checks, `evidence` the input

The package uses the command line, the client and the programs as a user does. `verify`, `claims` and `evidence` must not import
anything of the project, so that their result does not depend on its code. Nothing imports this package.
"""
