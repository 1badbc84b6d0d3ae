"""One adapter per family of models; nothing else knows the parameters of providers."""
