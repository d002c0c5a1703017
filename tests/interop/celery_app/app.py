"""The application as `celery -A tests.interop.celery_app.app` finds it; the environment says where its broker is."""

from __future__ import annotations

import os

from tests.interop.celery_app.tasks import build

app = build(*(os.environ[name] for name in ("INTEROP_BROKER", "INTEROP_RESULTS", "INTEROP_QUEUE", "INTEROP_TYPE")))
