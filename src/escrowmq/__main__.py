"""`python -m escrowmq` is the command `escrowmq`."""

import sys

from escrowmq.cli.main import main

sys.exit(main())
