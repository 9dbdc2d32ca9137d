"""General rules from equations at one choice of shapes."""
