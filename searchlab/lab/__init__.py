"""The laboratory around a search: what is kept of its measurements, and what is made of them."""
