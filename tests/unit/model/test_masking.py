"""Masking of secrets in names, URLs and texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.masking import HIDDEN, is_secret, mask

SECRET = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=20).map(lambda t: f"hush{t}")


@pytest.mark.parametrize(
    "name",
    ["db.password", "AWS_SECRET_ACCESS_KEY", "sig", "sas_token", "X-Amz-Signature", "spark.hadoop.fs.s3a.access.key",
     "account_key", "connection_string", "ssh.passphrase", "pass", "Authorization", "key"],
)  # fmt: skip
def test_secret_name_is_recognized(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["topology.team.name", "author", "passengers", "key_by", "bypass.rate", "sort.keys"])
def test_harmless_name_is_not_a_secret(name: str) -> None:
    assert not is_secret(name)


@given(SECRET)
def test_credentials_are_masked_in_any_text(secret: str) -> None:
    for text in (
        f"postgresql://ann:{secret}@db:5432/words",
        f"https://{secret}@example.org/repo",
        f"redis://ann:{secret}@one/0,redis://:{secret}@two/1",
        f"postgresql://ann:pa/{secret}@db/words",
        f"ann:{secret}@tcp(db:3306)/words",
        f"host=db user=ann password={secret} dbname=words",
        f"host=db password = '{secret}'",
        f"https://example.org/file?sig={secret}&part=2",
        f"https://example.org/file?token=a:{secret}==",
        f'{{"password": "{secret}"}}',
        f"Authorization: Bearer {secret}",
        f"no login at amqp://ann:{secret}@queue: refused",
    ):
        shown = mask(text)
        assert secret not in shown
        assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    ["http://host:80/a@b", "http://[::1]:80/a@b", "10:30 by ann@example.org", "a=b; rate: 5", "", "://", "=:"],
)
def test_text_without_secrets_is_kept(text: str) -> None:
    assert mask(text) == text


@given(st.text("=:/@ \"'&passwordtoken\n", max_size=60))
def test_masking_is_idempotent(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize("part", ["a", "@", "=", ":", "://", "key=", "password=x ", "a:b@", "://a:b/", "'"])
def test_masking_takes_linear_time(part: str) -> None:
    """A quadratic implementation would exceed the timeout of the test."""
    mask(part * 300_000)
