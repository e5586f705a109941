# expect: WA or RE | kind=stdin
# why: signals its parent by every system call that can, and by file ownership
import ctypes, fcntl, os, signal
libc = ctypes.CDLL(None, use_errno=True)
parent, ok = os.getppid(), []
info = ctypes.create_string_buffer(128)
calls = {"tkill": (200, parent, 9), "tgkill": (234, parent, parent, 9), "sigqueue": (129, parent, 9, info),
         "pidfd_open": (434, parent, 0)}
for name, call in calls.items():
    if libc.syscall(*call) >= 0:
        ok.append(name)
r, w = os.pipe()
try:
    fcntl.fcntl(r, fcntl.F_SETOWN, parent)
    ok.append("setown")
except OSError:
    pass
print("done", ok)
