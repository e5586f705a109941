# expect: PASS | kind=stdin
# why: prints its answer half from an exit handler, half from a destructor
import atexit
text = str(2 * int(input()))
class Last:
    def __init__(self, rest):
        self.rest = rest
    def __del__(self):
        print(self.rest)
keep = Last(text[1:])
atexit.register(print, text[:1], end="")
