"""One adapter per family of models; only adapters know the parameters of providers."""
