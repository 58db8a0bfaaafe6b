"""Cost models: plug-ins which import searchlab and which nothing in searchlab imports."""
