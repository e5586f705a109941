# expect: WA or RE | kind=stdin
# why: parks data in the buffers of many socket pairs: bounded by descriptors
import socket
kept, parked = [], 0
try:
    for _ in range(2000):
        a, b = socket.socketpair()
        kept += [a, b]
        a.setblocking(False)
        try:
            while True:
                parked += a.send(b"x" * 65536)
        except BlockingIOError:
            pass
except OSError:
    pass
print("parked MiB", parked >> 20)
