# expect: PASS | kind=stdin
# why: the fast input and output of contests: file descriptors, a replaced print, a replaced input
import io, os, sys
input = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline
out = io.StringIO()
sys.stdout = out
print(2 * int(input()))
sys.stdout = sys.__stdout__
os.write(1, out.getvalue().encode())
