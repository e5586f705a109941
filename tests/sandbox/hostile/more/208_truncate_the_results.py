# expect: RE or WA | kind=call
# why: empties every file it holds, over and over
import os
def solve(n):
    for fd in range(3, 64):
        try:
            os.ftruncate(fd, 0)
        except OSError:
            pass
    return -1
