# expect: PASS | kind=stdin
# why: recursion through lru_cache, which takes C stack, 40000 deep on the main thread
import sys
from functools import lru_cache
sys.setrecursionlimit(1 << 20)
@lru_cache(None)
def f(k):
    return 0 if k == 0 else 1 + f(k - 1)
n = int(input())
depth = 40000 if sys.version_info < (3, 12) else 400  # later versions bound recursion through C themselves
assert f(depth) == depth
print(2 * n)
