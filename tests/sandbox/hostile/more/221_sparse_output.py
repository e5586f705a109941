# expect: OLE or RE | kind=stdin
# why: writes one byte at the end of a terabyte of nothing
import os
os.lseek(1, 1 << 40, os.SEEK_SET)
os.write(1, b"x")
