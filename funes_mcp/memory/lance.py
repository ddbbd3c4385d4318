"""LanceDB, imported in one place and without what a table in a folder has no use for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any, Final

#: LanceDB takes data types from this client of a table service, whose requests take as long to import as all the rest.
_CLIENT: Final = "lance_namespace_urllib3_client"


def loaded() -> bool:
    """Whether `load` was called in this process: native threads run in it then, which a fork would not carry over."""
    return "lancedb" in sys.modules


def load() -> Any:
    """The module `lancedb`. The first time takes most of a second, and memory of a hundred megabytes."""
    if not loaded():
        _put_off(_CLIENT)
    return importlib.import_module("lancedb")


def _put_off(name: str) -> None:
    """Have a package executed when something is asked of it, and not when only a module inside it is imported."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    loader = spec.loader if spec is not None else None
    if spec is None or loader is None or not spec.submodule_search_locations:
        return
    package = importlib.util.module_from_spec(spec)
    package.__dict__["__getattr__"] = _Executed(package, loader.exec_module)
    sys.modules[name] = package


class _Executed:
    """`__getattr__` of a package that was not executed yet."""

    def __init__(self, package: ModuleType, execute: Any) -> None:
        self._package = package
        self._execute = execute
        self._lock = threading.RLock()
        self._under_way = False

    def __call__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # what goes through all modules asks for these
            raise AttributeError(name)
        with self._lock:
            if self._under_way:  # it asks itself for what it has not got yet
                raise AttributeError(name)
            if self._package.__dict__.get("__getattr__") is self:
                self._under_way = True
                try:
                    self._execute(self._package)
                finally:
                    self._under_way = False
                del self._package.__dict__["__getattr__"]
        return getattr(self._package, name)
