"""No form of a text hides a secret: redaction reads what a terminal shows, whatever stands between the letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.printable import clean_text
from kfjob.redaction import REDACTED, Redactor
from kfjob.redaction.forms import fold_text, list_forms
from tests.unit.mangled import DISGUISES, PASSWORD, SPACES, TOKEN, disguise, full_width, shows_secret

LINES = (
    f"DB_PASSWORD={PASSWORD}",
    f"DB_PASSWORD  =  '{PASSWORD}'",
    f'{{"api_key": "{PASSWORD}", "loss": 2.3}}',
    f"train.py --db-password {PASSWORD} --steps 5",
    f"postgres://me:{PASSWORD}@db/x",
    f"Authorization: Token {PASSWORD}",
    f"curl -u me:{PASSWORD} https://x",
    f"token {TOKEN} is invalid",
    f"HF_TOKEN='{TOKEN}'",
    f"step 5 b'DB_PASSWORD': b'{PASSWORD}'",
)


@st.composite
def mangled_lines(draw: st.DrawFn) -> str:
    """Return a line with a secret, in which anything invisible may stand before and after every character."""
    line = draw(st.sampled_from(LINES))
    places = draw(st.lists(st.tuples(st.integers(0, len(line)), st.sampled_from(DISGUISES)), max_size=12))
    for position, text in sorted(places, reverse=True):
        line = line[:position] + text + line[position:]
    return line


@given(mangled_lines())
def test_mangled_secret_is_redacted(line):
    redacted = Redactor().text(line)
    assert not shows_secret(redacted), ascii(redacted)
    assert not shows_secret(clean_text(redacted)), ascii(redacted)


@given(mangled_lines().filter(lambda line: not any(space in line for space in (*SPACES, "\x1b\u200b"))))
def test_secret_is_redacted_after_cleaning_too(line):
    assert not shows_secret(Redactor().text(clean_text(line)))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("mark", DISGUISES, ids=ascii)
def test_mark_between_all_letters_hides_no_secret(line, mark):
    assert not shows_secret(Redactor().text(disguise(line, mark)))
    assert not shows_secret(Redactor().text(mark.join(line)))


@pytest.mark.parametrize("line", LINES)
def test_full_width_letters_hide_no_secret(line):
    redacted = Redactor().text(full_width(line))
    assert REDACTED in redacted
    assert not shows_secret(redacted)


@pytest.mark.parametrize("escape", ["\\x1b[31m", "\\u001b[0m", "\\033[1m", "\\u200b", "\\x00", "%00", "\\e[0m"])
@pytest.mark.parametrize("line", LINES)
def test_escapes_that_a_program_printed_hide_no_secret(line, escape):
    redacted = Redactor().text(disguise(line, escape))
    assert not shows_secret(redacted.replace(escape, "")), redacted


@pytest.mark.parametrize("line", ["DB_PASSWORD%3D{}", "DB_PASSWORD\\u003d{}", "DB_PASSWORD\\x3d{}", "\\u0044B_PASSWORD={}"])
def test_escaped_separator_hides_no_secret(line):
    assert PASSWORD not in Redactor().text(line.format(PASSWORD))


@pytest.mark.parametrize("mark", DISGUISES, ids=ascii)
def test_known_secret_is_redacted_with_marks_in_it(mark):
    redacted = Redactor(["ordinary-words"]).text(f"failed with {disguise('ordinary-words', mark)} here")
    assert "ordinary-words" not in fold_text(redacted)
    assert redacted.startswith("failed with ")
    assert redacted.endswith(" here")


@given(st.text(alphabet=st.sampled_from("aB1 =:'\"éＡ中█\u200b\u0301\x1b[m\r\\"), max_size=60))
def test_text_without_a_name_keeps_its_characters(text):
    line = f"loss {text} ✓"
    redacted = Redactor().text(line)
    assert redacted == line or REDACTED in redacted


@given(st.text(alphabet=st.sampled_from("ab=\x1b[0m\x00\u200b\r\\x1éＡﬁ%3D"), max_size=30))
def test_every_character_of_a_form_stands_in_the_original(text):
    for form in list_forms(text):
        ranges = [form.locate(position, position + 1) for position in range(len(form.text))]
        assert all(0 <= start < end <= len(text) for start, end in ranges)
        assert ranges == sorted(ranges)


def test_ordinary_characters_of_other_scripts_stay_beside_a_secret():
    assert Redactor().text("Übung 中文 🙂 DB_PASSWORD=tomato10 ━━ é") == f"Übung 中文 🙂 DB_PASSWORD={REDACTED} ━━ é"


def test_colours_around_a_secret_stay():
    assert (
        Redactor().text("\x1b[31mHF_TOKEN\x1b[0m=\x1b[32mtomato10\x1b[0m ok")
        == f"\x1b[31mHF_TOKEN\x1b[0m=\x1b[32m{REDACTED}\x1b[0m ok"
    )


@pytest.mark.parametrize(("opening", "closing"), ["``", "''", '""', "()", "{}"])
@pytest.mark.parametrize("mark", ["", ":", ".", ",", ";", "!", "?", "?:"])
def test_quotes_around_a_command_stay(opening, closing, mark):
    """An error quotes a command that is redacted already, and the stream redacts the error again."""
    text = f"{opening}aws get-token --token hunter2secret99{closing}{mark} it exited with code 3"
    redacted = f"{opening}aws get-token --token [redacted]{closing}{mark} it exited with code 3"
    assert Redactor().text(text) == redacted
    assert Redactor().text(redacted) == redacted
