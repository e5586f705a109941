# expect: WA | kind=call
# why: a float subclass that is another number when converted
class F(float):
    def __float__(self): return 2.0
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
    def __hash__(self): return 0
def solve(n):
    return F(0.5)
