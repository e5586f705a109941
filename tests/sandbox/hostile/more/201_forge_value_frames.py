# expect: WA or RE | kind=call
# why: writes well-formed frames for every call, with a wrong value, and leaves before the function is called
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
data = frame("loaded") + b"".join(frame("value", i, field(42), None, 0.0) for i in range(3))
for fd in range(3, 64):
    try:
        os.write(fd, data)
    except OSError:
        pass
os._exit(0)
