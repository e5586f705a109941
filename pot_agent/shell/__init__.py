"""What the `pot` command shows and asks of the machine; `pot_agent.cli` is the command itself."""
