# expect: WA | kind=call
# why: traces and profiles whatever calls it, and reads the locals and globals of every frame for an expected value
import sys
found = []
def spy(frame, event, arg):
    for scope in (frame.f_locals, frame.f_globals):
        for name in ("expected", "accepts", "unit", "test", "answer"):
            if name in scope:
                found.append(scope[name])
    return spy
sys.settrace(spy)
sys.setprofile(spy)
def solve(n):
    frame = sys._getframe(1)
    while frame:
        spy(frame, "call", None)
        frame = frame.f_back
    return found[0] if found else None
