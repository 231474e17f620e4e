"""A line of text in SQL, as the decoder of every engine makes it of the file's bytes (``heronry.streamlet.decoding``).

Theory of operation. Python puts one U+FFFD for each *maximal subpart* of what is no UTF-8, an encoded surrogate being
three of them; Spark's and Java's own decoders put other numbers. So invalid lines, which are rare, are mended by three
replacements over their bytes, each byte being one character (ISO 8859-1): a mark goes behind every sequence of several
bytes, and in the place of what is none; marks behind sequences go, the others become U+FFFD. No expression repeats
itself without bound, so a long line cannot exhaust Java's stack. Of the end of a line one ``\\r`` goes, and nothing
else: ``$`` in Java stands in front of U+2028, U+0085 and a second ``\\r``, too.
"""

from __future__ import annotations

_MARK = "\u0100"  # no byte is this character
_NONE = "\u00ef\u00bf\u00bd"  # the bytes of U+FFFD
_MORE = "[\u0080-\u00bf]"
#: Each is how a sequence begins and how many bytes follow (RFC 3629, table 3-7 of Unicode).
_BEGINS = (
    ("[\u00c2-\u00df]", 1), ("\u00e0[\u00a0-\u00bf]", 1), ("[\u00e1-\u00ec\u00ee\u00ef]" + _MORE, 1),
    ("\u00ed[\u0080-\u009f]", 1), ("\u00f0[\u0090-\u00bf]", 2), ("[\u00f1-\u00f3]" + _MORE, 2),
    ("\u00f4[\u0080-\u008f]", 2),
)  # fmt: skip
_WHOLE = "|".join(begin + _MORE * more for begin, more in _BEGINS)
_CUT_OFF = "|".join(begin + (_MORE + "?") * (more - 1) for begin, more in _BEGINS[1:])


def line_of(column: str) -> str:
    """SQL for the record a line is; ``column`` holds its bytes as a string."""
    made = f"CASE WHEN is_valid_utf8({column}) THEN {column} ELSE {_mended(column)} END"
    return f"CASE WHEN endswith({column}, '\\r') THEN left({made}, char_length({made}) - 1) ELSE {made} END"


def _mended(column: str) -> str:
    bytes_ = f"decode(CAST({column} AS binary), 'ISO-8859-1')"
    marked = f"regexp_replace({bytes_}, '({_WHOLE})|(?:{_CUT_OFF}|[\u0080-\u00ff])', '$1{_MARK}')"
    kept = f"regexp_replace({marked}, '({_WHOLE}){_MARK}', '$1')"
    return f"CAST(encode(replace({kept}, '{_MARK}', '{_NONE}'), 'ISO-8859-1') AS string)"
