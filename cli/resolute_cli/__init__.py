"""The command line: `det NOUN VERB`.

Contains arguments, the calls of each command in their order, and the display of results. Must not depend on the master's
internals: it calls a master through `resolute.client`, and `det deploy local` starts one as a separate process.

- `main`         entry point, errors and exit codes
- `command`      how a noun declares its verbs
- `invocation`   the inputs of a running command: login, variables, output
- `render`       the only file that formats output
- `nouns`        one module a noun, imported on demand
"""
