"""eqsat."""
