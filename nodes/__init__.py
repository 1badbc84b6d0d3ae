"""The five nodes of the graph, the models they call and the prompts they send."""
