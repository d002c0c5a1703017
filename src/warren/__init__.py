"""Warren: a durable message broker on a log-structured transactional store.

import warren

with warren.open("/var/lib/app") as db:
    db.kv("users")[b"ada"] = b"countess"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warren.app.embedded import Warren

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def open(path: str, **settings: Any) -> Warren:
    """Open a directory as an embedded store, or make one (app/embedded)."""
    from warren.app.embedded import open_embedded

    return open_embedded(path, **settings)
