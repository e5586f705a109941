# expect: MLE or RE | kind=stdin
# why: maps 3 GiB of anonymous memory past the allocator
import mmap
m = mmap.mmap(-1, 3 << 30)
print(2 * int(input()))
