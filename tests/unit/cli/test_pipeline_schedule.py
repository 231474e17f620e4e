"""Output of ``heron pipeline schedule``: each scheduler that reads it starts the exact command."""

from __future__ import annotations

import ast
import configparser
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_cli.commands.view_batches import ViewSchedule, airflow_dag, cron_line, parse_interval, systemd_units
from heron_runtime.failures import UsageError

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12)
recurring = st.builds(
    ViewSchedule, view=st.just("sums"), command=st.lists(words, min_size=1, max_size=4).map(tuple),
    home=words.map("/".__add__), every=st.just(15), unit=st.just("m"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "found"), [("1m", (1, "m")), ("30m", (30, "m")), ("6h", (6, "h")), ("1d", (1, "d"))])
def test_calendar_interval_is_parsed(text: str, found: tuple[int, str]) -> None:
    assert parse_interval(text) == found


@pytest.mark.parametrize("text", ["", "7m", "0m", "60", "90m", "5h", "2d", "1w", "1.5h", "-1h", "1h "])
def test_interval_without_a_calendar_form_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="invalid interval"):
        parse_interval(text)


@given(recurring)
def test_cron_starts_the_command(found: ViewSchedule) -> None:
    line = cron_line(found)
    fields, command = line.split(" ", 5)[:5], line.split(" ", 5)[5]
    assert fields == ["*/15", "*", "*", "*", "*"]
    assert "\n" not in line
    assert "%" not in command.replace(r"\%", ""), "cron ends the command there"
    given_to_shell = shlex.split(command.replace(r"\%", "%"))
    lock = f"{found.home}/pipeline/sums.lock"
    assert given_to_shell == ["env", f"HERONRY_HOME={found.home}", "flock", "-n", lock, *found.command]


@given(recurring)
def test_systemd_starts_the_command(found: ViewSchedule) -> None:
    service, timer = systemd_units(found).split("\n\n# heronry-sums.timer\n")
    units = [configparser.RawConfigParser(strict=True, delimiters=("=",)) for _ in range(2)]
    for unit, text in zip(units, (service, timer), strict=True):
        unit.read_string(text)
    assert _unit_words(units[0]["Service"]["ExecStart"], "%$") == list(found.command)
    assert _unit_words(units[0]["Service"]["Environment"], "%") == [f"HERONRY_HOME={found.home}"]
    assert units[0]["Service"]["Type"] == "oneshot"
    assert units[1]["Timer"]["OnCalendar"] == "*:0/15"


def _unit_words(text: str, read: str) -> list[str]:
    """Parse words as systemd.service(5) and systemd.exec(5) define: quotes, backslashes, doubled characters."""
    found, word, at = [], "", 0
    while at < len(text):
        assert text[at] == '"'
        at += 1
        while text[at] != '"':
            at += text[at] == "\\"
            word += text[at]
            at += 1
        found.append(word)
        word, at = "", at + 2
    for letter in read:
        assert all(letter not in part.replace(2 * letter, "") for part in found)
        found = [part.replace(2 * letter, letter) for part in found]
    return found


@given(recurring)
def test_airflow_starts_the_command(found: ViewSchedule) -> None:
    tree = ast.parse(airflow_dag(found))
    values = {
        keyword.arg: keyword.value for call in ast.walk(tree) if isinstance(call, ast.Call) for keyword in call.keywords
    }
    assert shlex.split(ast.literal_eval(values["bash_command"])) == list(found.command)
    assert ast.literal_eval(values["env"]) == {"HERONRY_HOME": found.home}
    assert isinstance(values["minutes"], ast.Constant)
    assert values["minutes"].value == 15


@pytest.mark.parametrize(
    ("every", "unit", "cron", "systemd", "minutes"),
    [
        (5, "m", "*/5 * * * * ", "OnCalendar=*:0/5\n", "minutes=5)"),
        (1, "h", "7 */1 * * * ", "OnCalendar=0/1:07\n", "minutes=60)"),
        (6, "h", "7 */6 * * * ", "OnCalendar=0/6:07\n", "minutes=360)"),
        (1, "d", "7 0 * * * ", "OnCalendar=00:07\n", "minutes=1440)"),
    ],
)
def test_interval_has_the_right_form_in_each_scheduler(
    every: int, unit: str, cron: str, systemd: str, minutes: str
) -> None:
    found = ViewSchedule("sums", ("heron",), "/home", every, unit)
    assert cron_line(found).startswith(cron + "env ")
    assert systemd in systemd_units(found)
    assert minutes in airflow_dag(found)
