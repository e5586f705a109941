# expect: WA | kind=call
# why: a dict subclass with lying items, keys and length
class D(dict):
    def items(self): return [("a", 1)]
    def keys(self): return ["a"]
    def __len__(self): return 1
    def __eq__(self, other): return True
def solve(n):
    return D(b=2)
