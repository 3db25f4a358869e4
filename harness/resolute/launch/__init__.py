"""Entry of every task: from the environment that master and agent prepared to the user's program.

Contains the task environment (variables, run directory, info files) and the start of processes in a container. Must not depend on
frameworks, schedulers or clouds; the standard library only.

- `__main__`          `python -m resolute.launch`, the command of every container
- `handed`            data that the order contains, so that no request is needed
- `gang_variables`    the addresses of the other members: `MASTER_ADDR`, ranks, the arguments of torchrun
- `process_per_slot`  `python -m resolute.launch.process_per_slot -- CMD`, one process per slot
- `torch_distributed` `python -m resolute.launch.torch_distributed CMD`, torchrun over the whole gang
- `wrap_rank`         the prefix of each rank's output
"""
