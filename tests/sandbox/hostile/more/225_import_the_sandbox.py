# expect: WA or RE | kind=call
# why: imports the sandbox's own modules to change them
import sys
for name in list(sys.modules):
    if "pot" in name or "runner" in name or "judge" in name:
        sys.modules[name].__dict__.clear()
try:
    import pot_agent.sandbox.compare as c
    c.same_output = lambda *a: True
except Exception:
    pass
def solve(n):
    return None
