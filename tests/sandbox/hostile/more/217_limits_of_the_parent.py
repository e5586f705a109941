# expect: WA or RE | kind=stdin
# why: takes away its parent's right to open files
import os, resource
resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))
print("done")
