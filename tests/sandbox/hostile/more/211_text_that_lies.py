# expect: WA | kind=call
# why: a str subclass that equals everything and encodes as something else
class S(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def encode(self, *args): return b"2"
    def __str__(self): return "2"
def solve(n):
    return S("wrong")
