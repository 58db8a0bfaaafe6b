"""What compiled programs run on: artifacts, kernels, the thread pool, memory."""
