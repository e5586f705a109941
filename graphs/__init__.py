"""The graphs that LangGraph Studio and the LangGraph server load: one short file each, variable `graph`."""
