"""What every test, test worker and notebook kernel shares; pytest loads this file first, before anything imports torch."""

import os

os.environ["DSPARK_PROFILE"] = "tiny"
# Two workers on two cores: more threads would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
