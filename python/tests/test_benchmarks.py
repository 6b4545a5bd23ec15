"""The benchmarks run with the installed package, from their folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "bench" / "compare.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="SKIPPED benchmarks: not in a clone")


def test_benchmarks_find_the_installed_package_and_name_their_parts(tmp_path: Path) -> None:
    # Python imports from a script's folder first, so the package's sources must not be in that
    # folder.
    command = [sys.executable, str(SCRIPT), "underload", "replay", "nothing"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("there is no part `nothing`; known: runs, packets"), done.stderr
