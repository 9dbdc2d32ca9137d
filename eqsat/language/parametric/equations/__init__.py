"""Equations and bounds that facts say of unknown integers, beside what a solver is asked."""
