"""Figures and widgets: the house style, tokens in boxes, one file per lesson, the paper's figures with ours in them."""
