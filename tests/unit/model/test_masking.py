"""What other people may read of names, URLs and texts that hold secrets."""

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
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["topology.team.name", "author", "passengers", "key_by", "bypass.rate", "sort.keys"])
def test_names_that_are_harmless(name: str) -> None:
    assert not is_secret(name)


@given(SECRET)
def test_credentials_are_hidden_wherever_they_stand(secret: str) -> None:
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
def test_what_holds_no_secret_is_kept(text: str) -> None:
    assert mask(text) == text


@given(st.text("=:/@ \"'&passwordtoken\n", max_size=60))
def test_any_text_is_masked_once(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize("part", ["a", "@", "=", ":", "://", "key=", "password=x ", "a:b@", "://a:b/", "'"])
def test_long_texts_take_linear_time(part: str) -> None:
    """A quadratic mask would not end here within minutes."""
    mask(part * 300_000)
