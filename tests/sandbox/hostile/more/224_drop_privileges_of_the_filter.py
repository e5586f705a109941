# expect: WA or RE | kind=stdin
# why: asks for another filter, another ruleset, another dumpability, another death signal
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
ok = []
for name, call in {"seccomp": (317, 0, 0, 0), "landlock": (446, 3, 0), "dumpable": (157, 4, 1, 0, 0, 0),
                   "pdeathsig": (157, 1, 0, 0, 0, 0), "subreaper": (157, 36, 1, 0, 0, 0), "personality": (135, 0x40000)}.items():
    if libc.syscall(*call) >= 0:
        ok.append(name)
print("allowed", ok)
