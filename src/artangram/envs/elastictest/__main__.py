"""`python -m artangram.envs.elastictest [options] [pytest's arguments]`."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
