"""Packs a native module that cargo built into a wheel: `wheel.py LIBRARY VERSION FOLDER`.

For tests only, so that one cargo command builds everything they need. Users install maturin's
wheel. Prints the wheel's path.
"""

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).parent


def main(library: str, version: str, folder: str) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp310-abi3-{platform}"
    info = f"underload-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: underload\nVersion: {version}\n"
    metadata += "Requires-Python: >=3.10\n"
    files = {
        path.relative_to(HERE).as_posix(): path.read_bytes()
        for path in sorted((HERE / "underload").rglob("*"))
        if path.suffix in (".py", ".pyi", ".typed")
    }
    files["underload/_underload.abi3.so"] = Path(library).read_bytes()
    files[f"{info}/METADATA"] = metadata.encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: underload\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = wheel.encode()
    record = [f"{name},sha256={digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder, f"underload-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    print(path)


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


main(*sys.argv[1:])
