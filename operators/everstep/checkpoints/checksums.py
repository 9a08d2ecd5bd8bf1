"""Checksums of short texts as Cloud Storage lists them: base64 of MD5 and of big-endian CRC32C.

The body of a ``.meta`` object is a digest of 64 or 65 characters, so the listing's own checksum tells which
data it names without reading the object.
"""

from __future__ import annotations

import base64
import hashlib

_POLYNOMIAL = 0x82F63B78


def md5_base64(body: bytes) -> str:
    """``md5Hash`` as Cloud Storage lists it."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode("ascii")


def crc32c_base64(body: bytes) -> str:
    """``crc32c`` as Cloud Storage lists it (Castagnoli, RFC 3720; composite objects have no MD5 but have
    this).
    """
    crc = 0xFFFFFFFF
    for byte in body:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return base64.b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode("ascii")


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ _POLYNOMIAL if value & 1 else value >> 1
    return value


_TABLE = tuple(_table_entry(value) for value in range(256))
