"""Networks as small torch modules of published architectures, with random weights from a seed.

Every module of this package has three functions that take the same sizes: `make` builds the network in evaluation mode,
`example_inputs` the arguments that it is exported with, and `dynamic_shapes` says which of their sizes are free, in the
form that `torch.export.export` takes. The defaults are the published sizes; tests use smaller ones.
"""
