"""`python -m resolute_agent`."""

from __future__ import annotations

import sys

from resolute_agent.main import main

sys.exit(main())
