"""How an answer is checked: comparisons with right and wrong functions, the cases, the reader's progress."""
