# expect: WA or RE | kind=stdin
# why: changes mode, times, owner and attributes of a host file: no write, so no business of Landlock
import os
ok = []
path = "/tmp/sandbox_canary/file"
for name, change in {
    "chmod": lambda: os.chmod(path, 0o777), "utime": lambda: os.utime(path, (0, 0)), "chown": lambda: os.chown(path, 1, 1),
    "setxattr": lambda: os.setxattr(path, "user.x", b"1"), "link": lambda: os.link(path, "/tmp/sandbox_canary/link"),
    "truncate": lambda: os.truncate(path, 0), "rename": lambda: os.rename(path, path + "2"),
}.items():
    try:
        change()
        ok.append(name)
    except OSError:
        pass
print("changed", ok)
