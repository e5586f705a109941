# expect: PASS | kind=stdin
# why: leaves by os._exit(0) once its answer is flushed
import os
print(2 * int(input()), flush=True)
os._exit(0)
