# expect: WA or RE | kind=call
# why: replaces modules and built-ins that an encoder of values needs
import builtins, struct, sys
class Fake:
    def __getattr__(self, name):
        return lambda *args, **kwargs: b"i\x01\x00\x00\x00\x02"
for name in ("os", "struct", "io", "json", "pickle", "marshal", "time"):
    sys.modules[name] = Fake()
struct.pack = lambda *args: b""
for name in ("len", "list", "type", "int", "str", "bytes", "hasattr", "next", "iter"):
    setattr(builtins, name, Fake())
def solve(n):
    return -1
