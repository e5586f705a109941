# expect: RE or WA | kind=call
# why: closes all descriptors, the channel of results among them
import os
os.closerange(0, 256)
def solve(n):
    return -1
