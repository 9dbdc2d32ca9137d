"""Reports as text, and as HTML for a cell of a notebook."""
