# expect: RE or WA | kind=call
# why: puts standard output, with success records in it, where the results go
import os
os.write(1, b'{"passed": true}\n')
for fd in range(3, 64):
    try:
        os.dup2(1, fd)
    except OSError:
        pass
def solve(n):
    return -1
