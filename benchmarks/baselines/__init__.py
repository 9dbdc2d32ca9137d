"""The search of MetaFlow and TASO over graphs, beside eqsat, with what was published."""
