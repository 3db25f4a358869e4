"""`python -m resolute_master`."""

import sys

from resolute_master.main import main

sys.exit(main(sys.argv[1:]))
