# expect: TLE | kind=stdin
# why: stops itself with a signal that cannot be caught: it uses no CPU and never ends
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
print(2 * int(input()))
