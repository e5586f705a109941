"""Several problems at once, by `Send`; the answers come in the problems' order (the graph: graphs/parallel.py)."""

from graphs.parallel import graph

PROBLEMS = [
    {
        "problem": "Write a function is_even(n) that tells whether the integer n is even.",
        "tests": ["assert is_even(4) == True", "assert is_even(7) == False"],
    },
    {
        "problem": "Write a function largest(numbers) that returns the largest number of a list.",
        "tests": ["assert largest([1, 5, 3]) == 5", "assert largest([-2, -7]) == -2"],
    },
]

if __name__ == "__main__":
    for solution in graph.invoke({"problems": PROBLEMS})["solutions"]:
        print(solution.get("error") or f"# {solution['stop_reason']}\n{solution['program']}")
