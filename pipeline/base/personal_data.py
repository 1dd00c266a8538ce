"""Masking personal data and secrets in queries, so that they reach no dataset."""

import pyarrow as pa
import pyarrow.compute as pc

# RE2 patterns, replaced in this order: an address inside a URL before the digits of a phone number.
MASKS = {
    "[email]": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "[token]": (
        r"\b(?:sk|pk|rk|ghp|gho|xox[abprs]|glpat|whsec|pel|AKIA|ASIA)[-_A-Z0-9][\w-]{10,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
        r"|\b[0-9a-fA-F]{32,}\b"
    ),
    "[ip]": r"\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{0,4}\b",
    "[card]": r"\b(?:\d{4}[ -]?){3}\d{4}\b",
    "[phone]": (
        r"(?:\+\d{1,3}[ .-]?(?:\(0\)[ .-]?)?|\(\d{2,5}\)[ .-]?)\d{1,5}(?:[ .-]?\d{2,4}){1,4}\b"
        r"|\b0\d{1,4}[ /-]\d{3,}(?:[ -]?\d{2,})*\b|\b\d{3}[ .-]\d{3}[ .-]\d{4}\b"
    ),
}


def mask(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace e-mail addresses, secrets, IP addresses, card and phone numbers by the kind's name in brackets."""
    for name, pattern in MASKS.items():
        text = pc.replace_substring_regex(text, pattern, name)
    return text
