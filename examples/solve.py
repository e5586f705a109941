"""Ten lines: a problem, two tests, a program."""

from pot_agent import create_pot_agent

graph = create_pot_agent()  # embedded model, local sandbox, quick budget on a CPU
solution = graph.invoke(
    {
        "problem": "Write a function is_even(n) that tells whether the integer n is even.",
        "tests": ["assert is_even(4) == True", "assert is_even(7) == False", "assert is_even(0) == True"],
    }
)["solution"]
print(solution["program"], f"# solved: {solution['solved']}, {solution['stop_reason']}", sep="\n")
