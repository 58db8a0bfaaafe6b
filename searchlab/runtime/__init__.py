"""The runtime of compiled programs: artifacts, kernels, the thread pool, memory."""
