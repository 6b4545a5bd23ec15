"""Reads, writes, checks and recommends cable modem configuration files.

Arguments of type bytes are the content of a file. `secret` is the shared secret of the operator's
CMTS; it is never stored.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from . import _underload

__all__ = ["Finding", "Recommendation", "check", "decode", "describe", "encode", "recommend"]


class Finding(NamedTuple):
    """A rule that a file breaks."""

    rule: str
    """The rule, as `underload docsis check --rules` lists it."""
    severity: str
    """`error`, `warning` or `note`."""
    words: str
    """What is wrong, where, and what to do."""


class Recommendation(NamedTuple):
    """Settings for an upstream."""

    text: str
    """The configuration as TOML, for `encode`."""
    guideline_buffer_bytes: int
    """The buffer in CM-GL-Buffer-V01 for the nearest rate."""


def decode(
    content: bytes, form: Literal["toml", "main"] = "toml", *, lenient: bool = False
) -> str:
    """Decodes a file to text: to TOML, which preserves every byte, or to the form of the open
    `docsis` encoder. `lenient` skips duplicates and values that do not fit. Raises
    `DocsisError`."""
    return _underload.docsis_decode(bytes(content), form, lenient)


def describe(content: bytes, *, lenient: bool = False) -> dict[str, Any]:
    """Returns every setting with its name, unit, meaning and offset, as a tree of dicts."""
    tree: dict[str, Any] = json.loads(_underload.docsis_describe(bytes(content), lenient))
    return tree


def encode(text: str, *, secret: bytes | None = None, force: bool = False) -> bytes:
    """Encodes a text of either form. With a secret, all integrity checks are computed; without a
    secret, the file has the checks that the text contains. Raises `DocsisError` if the file breaks
    a rule; with `force` the file is encoded all the same, with the checks that need no secret."""
    return _underload.docsis_encode(text, secret, force)


def check(content: bytes, *, secret: bytes | None = None) -> list[Finding]:
    """Returns the findings about a file. Without a secret, the integrity check of the CMTS is not
    verified."""
    text, words = _underload.docsis_check(bytes(content), secret)
    found = json.loads(text)
    return [Finding(it["rule"], it["severity"], says) for it, says in zip(found, words)]


def recommend(
    rate_bit_per_s: int,
    aqm: Literal["buffer", "docsis-pie", "low-latency"] = "docsis-pie",
    *,
    target_ms: int = 10,
    peak_bit_per_s: int | None = None,
    burst_bytes: int = 0,
) -> Recommendation:
    """Returns buffer or AQM settings for an upstream of this rate."""
    peak = rate_bit_per_s if peak_bit_per_s is None else peak_bit_per_s
    return Recommendation(
        *_underload.docsis_recommend(rate_bit_per_s, peak, burst_bytes, aqm, target_ms)
    )
