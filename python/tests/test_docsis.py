"""Cable modem files: text and bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import underload as ul
from underload import docsis

SECRET = b"a secret"


def test_what_is_recommended_can_be_encoded_and_read_back() -> None:
    for aqm in ("buffer", "docsis-pie", "low-latency"):
        found = docsis.recommend(10_000_000, aqm, peak_bit_per_s=12_000_000, burst_bytes=40_960)
        assert found.guideline_buffer_bytes == 51_200
        content = docsis.encode(found.text, secret=SECRET)
        assert [it for it in docsis.check(content, secret=SECRET) if it.severity == "error"] == []
        assert docsis.encode(docsis.decode(content)) == content
        assert docsis.decode(content, "main").startswith("Main")
        names = [setting["name"] for setting in docsis.describe(content)["tlvs"]]
        assert "UpstreamServiceFlow" in names


def test_a_file_without_its_checks_is_refused_unless_forced() -> None:
    text = docsis.recommend(10_000_000).text
    with pytest.raises(ul.DocsisError, match="MIC"):
        docsis.encode(text)
    content = docsis.encode(text, force=True)
    assert {it.severity for it in docsis.check(content)} >= {"error"}


def test_wrong_secrets_and_texts_are_reported() -> None:
    content = docsis.encode(docsis.recommend(5_000_000).text, secret=SECRET)
    assert any(it.severity == "error" for it in docsis.check(content, secret=b"other"))
    with pytest.raises(ul.DocsisError):
        docsis.encode("[[no-such-setting]]\n")
    with pytest.raises(ul.DocsisError, match="expected toml or main"):
        docsis.decode(content, "yaml")  # type: ignore[arg-type]
    with pytest.raises(ul.DocsisError, match="above 0"):
        docsis.recommend(0)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_text_or_an_error(content: bytes) -> None:
    docsis.check(content)
    try:
        docsis.decode(content)
        docsis.describe(content)
    except ul.DocsisError as error:
        assert str(error)
