"""Graphs on OpenVINO: on its CPU plugin, in the element types that they state."""
