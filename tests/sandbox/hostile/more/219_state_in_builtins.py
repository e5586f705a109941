# expect: WA | kind=call
# why: answers right only in a process that has answered before: passes in company, fails alone
import builtins
def solve(n):
    seen = builtins.__dict__.setdefault("seen", [])
    seen.append(n)
    return 2 * n if n == 1 or len(seen) > 1 else None
