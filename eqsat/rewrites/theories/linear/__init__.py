"""Sums of sums of products: products go through sums, and equal terms are added up."""
