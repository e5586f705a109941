# expect: PASS | kind=stdin
# why: a main guard, a dataclass, and exit()
from dataclasses import dataclass
import pickle
@dataclass
class Box:
    n: int
def main():
    print(pickle.loads(pickle.dumps(Box(int(input())))).n * 2)
    exit()
if __name__ == "__main__":
    main()
