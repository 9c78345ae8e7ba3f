"""The tiny world: an invented encyclopedia and the texts about it, all written by code from a seed.

May import names and errors of the ground floor, nothing else of the house.
"""
