"""Where a broker is found: its data directory, and the socket for commands in it.

Imports nothing but error classes: `warren ctl ping` reads it in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from warren.base.errors import Misuse

SOCKET = "warren.sock"  # in the data directory: the management API, for administrators of this machine


def default_data_directory(environment: Mapping[str, str]) -> str:
    """The data directory if no flag names one."""
    if named := environment.get("WARREN_DATA_DIR"):
        return named
    if shared := environment.get("XDG_DATA_HOME"):
        return f"{shared.rstrip('/')}/warren"
    if home := environment.get("HOME"):
        return f"{home.rstrip('/')}/.local/share/warren"
    raise Misuse("no directory was given, and HOME is not set", "name one with --data-dir")
