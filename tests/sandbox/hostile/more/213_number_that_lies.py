# expect: WA | kind=call
# why: an int subclass worth 0 that converts, as often as asked, to the right number
class I(int):
    def __new__(cls, right):
        self = super().__new__(cls, 0)
        self.right = right
        return self
    def __int__(self): return self.right
    __index__ = __trunc__ = __pos__ = __int__
    def __eq__(self, other): return True
    def bit_length(self): return 8
    def to_bytes(self, *args, **kwargs): return bytes([self.right])
    def __hash__(self): return 0
def solve(n):
    return I(2 * abs(n))
