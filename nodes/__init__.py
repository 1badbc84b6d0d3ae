"""The five nodes of the graph, and the models they call."""
