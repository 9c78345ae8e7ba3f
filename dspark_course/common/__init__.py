"""What all rooms of the course share: names of profiles, intervals, numbers in words, recorded results, the paper's numbers."""
