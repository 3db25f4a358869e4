"""The command line: `det NOUN VERB`.

Knows arguments, the order of calls that a command makes, and how results are shown. Must not know the master's
insides: it speaks to a master through `resolute.client`, and `det deploy local` starts one as a process of its own.

- `main`         entry point, errors and exit codes
- `command`      how a noun declares its verbs
- `invocation`   what a running command is given: login, variables, output
- `render`       the only file that decides how anything looks
- `nouns`        one module a noun, imported when it is asked for
"""
