# expect: PASS | kind=stdin
# why: works in a pool of threads that nobody shuts down
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(4)
n = int(input())
print(sum(pool.map(lambda x: x, [n, n])))
