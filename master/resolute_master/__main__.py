"""`python -m resolute_master`."""

import gc
import sys

gc.disable()  # the master collects at moments of its own (`resolute_master.garbage`), and nothing while it starts

from resolute_master.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
