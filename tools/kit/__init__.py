"""What an instructor needs around the lessons: the student edition, a grader, slides, a fork of
one's own."""
