# expect: PASS | kind=stdin
# why: an integer of more digits than Python converts by default
n = int(input())
assert len(str(7 ** 20000)) > 4300 and int("9" * 5000) > 0
print(2 * n)
