"""The ground floor: errors, names, files, clocks, intervals, numbers in words, and the paper's numbers.

It imports no other room, and every room may import it.
"""
