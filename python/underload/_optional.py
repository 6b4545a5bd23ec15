"""Libraries that are used where they are installed."""

from __future__ import annotations

import importlib
from typing import Any

from ._errors import MissingLibrary


def library(name: str, what: str) -> Any:
    """The module of that name, or an error that says what needs it and how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MissingLibrary(
            f"{what} needs {package}, which is not installed: pip install {package}"
        ) from error
