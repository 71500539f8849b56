"""Documents for people: the only place where rich is imported and bytes are humanised."""
