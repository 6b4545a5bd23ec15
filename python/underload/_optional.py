"""Optional libraries."""

from __future__ import annotations

import importlib
from typing import Any

from ._errors import MissingLibrary


def library(name: str, what: str) -> Any:
    """Imports the optional library `name`. Raises `MissingLibrary`, which says that `what` needs
    the library and how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MissingLibrary(
            f"{what} needs {package}, which is not installed: pip install {package}"
        ) from error
