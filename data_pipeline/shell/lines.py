r"""SQL for lines of text, equal to the decoder of all engines (``heronry.streamlet.decoding``).

Python puts one U+FFFD for each *maximal subpart* of invalid UTF-8, where an encoded surrogate counts as three. The
decoders of Spark and Java put other numbers. Invalid lines, which are rare, are therefore repaired by three
replacements over their bytes, with each byte as one character (ISO 8859-1). A mark is put after every multi-byte
sequence and in place of every invalid part. Then marks after sequences are removed, and the others become U+FFFD. The
expressions do not repeat without bound, so a long line cannot exhaust Java's stack. Only one ``\r`` is removed from the
end of a line. ``$`` is not used, as in Java it also matches before U+2028, U+0085 and a second ``\r``.
"""

from __future__ import annotations

_MARK = "\u0100"  # a character outside ISO 8859-1, so it does not occur
_NONE = "\u00ef\u00bf\u00bd"  # the bytes of U+FFFD
_MORE = "[\u0080-\u00bf]"
#: The beginning of a sequence, and the number of bytes that follow (RFC 3629, table 3-7 of Unicode).
_BEGINS = (
    ("[\u00c2-\u00df]", 1), ("\u00e0[\u00a0-\u00bf]", 1), ("[\u00e1-\u00ec\u00ee\u00ef]" + _MORE, 1),
    ("\u00ed[\u0080-\u009f]", 1), ("\u00f0[\u0090-\u00bf]", 2), ("[\u00f1-\u00f3]" + _MORE, 2),
    ("\u00f4[\u0080-\u008f]", 2),
)  # fmt: skip
_WHOLE = "|".join(begin + _MORE * more for begin, more in _BEGINS)
_CUT_OFF = "|".join(begin + (_MORE + "?") * (more - 1) for begin, more in _BEGINS[1:])


def line_of(column: str) -> str:
    """Return SQL for the record of a line; ``column`` holds its bytes as a string."""
    made = f"CASE WHEN is_valid_utf8({column}) THEN {column} ELSE {_mended(column)} END"
    return f"CASE WHEN endswith({column}, '\\r') THEN left({made}, char_length({made}) - 1) ELSE {made} END"


def _mended(column: str) -> str:
    bytes_ = f"decode(CAST({column} AS binary), 'ISO-8859-1')"
    marked = f"regexp_replace({bytes_}, '({_WHOLE})|(?:{_CUT_OFF}|[\u0080-\u00ff])', '$1{_MARK}')"
    kept = f"regexp_replace({marked}, '({_WHOLE}){_MARK}', '$1')"
    return f"CAST(encode(replace({kept}, '{_MARK}', '{_NONE}'), 'ISO-8859-1') AS string)"
