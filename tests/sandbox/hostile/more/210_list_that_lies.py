# expect: WA | kind=call
# why: a list subclass whose length, iteration, equality and repr all lie or recurse
class L(list):
    def __len__(self): return 10 ** 9
    def __iter__(self):
        while True:
            yield self
    def __eq__(self, other): return True
    def __repr__(self): return repr(self)
    def __getitem__(self, i): return self
def solve(n):
    return L([n])
