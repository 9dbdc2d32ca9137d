"""Work on graphs: building, folding, interpretation, lowering of plans."""
