"""LiveCodeBench's private tests: base64 of zlib of a pickle of JSON text.

Limits first: nothing is ever built from such a pickle but plain data: the unpickler refuses every class and function by
name, so no code of the data runs. What it inflates to is bounded. A pickle may still make Python use memory in
proportion to that bound.
"""

import base64
import binascii
import io
import pickle
import zlib
from typing import Any, NoReturn

from pot_agent.errors import DatasetError

MAX_INFLATED_BYTES = 1 << 30
"""Tests of one problem; the largest of LiveCodeBench's are a few hundred megabytes."""


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, text, lists and dicts, and refuses whatever has to be imported."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, and plain data needs no class")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse."""
        raise pickle.UnpicklingError("it refers to an object that is not in it")


def decode_private_tests(encoded: str, where: str, *, most_bytes: int = MAX_INFLATED_BYTES) -> str:
    """The JSON text. Raises `DatasetError` for anything that is not such text."""
    try:
        packed = base64.b64decode(encoded.encode("ascii"), validate=True)
        inflated = _inflated(packed, where, most_bytes)
        text = PlainUnpickler(io.BytesIO(inflated)).load()
    except DatasetError:
        raise
    except (binascii.Error, zlib.error, UnicodeEncodeError) as error:
        raise DatasetError(f"{where}: private tests are damaged ({error}); get the file again", value=where) from error
    except Exception as error:  # a pickle that is broken may raise anything
        raise DatasetError(f"{where}: private tests are not plain data: {error}", value=where) from error
    if not isinstance(text, str):
        raise DatasetError(f"{where}: private tests must be JSON text, got {type(text).__name__}", value=where)
    return text


def _inflated(packed: bytes, where: str, most_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    inflated = stream.decompress(packed, most_bytes)
    if stream.unconsumed_tail or not stream.eof:
        reason = f"more than {most_bytes:,} bytes" if stream.unconsumed_tail else "cut short"
        raise DatasetError(f"{where}: private tests are damaged: {reason}; get the file again", value=where)
    return inflated
