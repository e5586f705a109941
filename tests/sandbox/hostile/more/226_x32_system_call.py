# expect: RE | kind=stdin
# why: makes a system call by the numbers of another architecture, which ends the process
import ctypes
ctypes.CDLL(None).syscall(0x40000000 + 39)
print(2 * int(input()))
