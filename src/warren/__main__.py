"""`python -m warren`: the command `warren`."""

from __future__ import annotations

import sys

from warren.cli.main import main

sys.exit(main())
