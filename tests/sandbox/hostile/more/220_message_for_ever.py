# expect: TLE | kind=stdin
# why: an exception whose message is never finished
class Slow(Exception):
    def __str__(self):
        while True:
            pass
raise Slow
