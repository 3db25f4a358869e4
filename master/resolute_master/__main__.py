"""`python -m resolute_master`."""

import gc
import sys

gc.disable()  # until the master has started (`resolute_master.garbage`): the programs that are imported stay

from resolute_master.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
