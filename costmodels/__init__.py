"""Cost models: plug-ins that import searchlab and that nothing in searchlab imports."""
