"""From the sources of the lessons to notebooks, figures and tables, and a run of the whole
course."""
