# expect: WA | kind=call
# why: an object whose class claims, by property and metaclass, to be int
class M(type):
    def __instancecheck__(cls, other): return True
    def __subclasscheck__(cls, other): return True
    def mro(cls): return [cls, object]
    __name__ = "int"
class O(metaclass=M):
    @property
    def __class__(self): return int
    def __eq__(self, other): return True
    def __index__(self): return 2
    __int__ = __index__
def solve(n):
    return O()
