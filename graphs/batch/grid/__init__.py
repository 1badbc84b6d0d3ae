"""The combinations of a batch: the rows of its values, filled into its conversation."""
