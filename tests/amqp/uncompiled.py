"""A module of `warren.amqp` as the Python it is written in, whether it is compiled or not."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def uncompiled(name: str) -> ModuleType:
    path = Path(str(sys.modules["warren.amqp"].__file__)).with_name(f"{name}.py")
    spec = spec_from_file_location(f"uncompiled_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
