"""The five nodes of the graph, the models they call and the prompts they send."""

# The graphs import the nodes, and these the words the graphs are made of: whichever a program
# imports first, the graphs begin, so that the order is always the same.
import duologue.graphs  # noqa: F401
