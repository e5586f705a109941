"""The LangChain tools that the graphs bind, configured."""
