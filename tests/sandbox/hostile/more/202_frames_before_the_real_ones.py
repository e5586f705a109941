# expect: RE | kind=call
# why: writes a well-formed frame for the first call and then answers: its real frames come out of order
import os, struct
def field(value):
    if isinstance(value, list):
        return b"l" + struct.pack("<I", len(value)) + b"".join(map(field, value))
    if isinstance(value, str):
        return b"s" + struct.pack("<I", len(value)) + value.encode()
    if isinstance(value, bytes):
        return b"b" + struct.pack("<I", len(value)) + value
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    return b"N" if value is None else b"i" + struct.pack("<I", 1) + bytes([value])
def frame(*parts):
    body = field(list(parts))
    return struct.pack("<I", len(body)) + body
data = frame("loaded") + frame("value", 0, field(2), None, 0.0)
for fd in range(3, 64):
    try:
        os.write(fd, data)
    except OSError:
        pass
def solve(n):
    return 2 * n
