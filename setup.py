"""What pyproject.toml cannot say: the compiled lane. A machine without a compiler leaves it out,
and so does ESCROWMQ_PURE=1, which makes a wheel for all machines: plain Python does the same."""

import os
from glob import glob

from setuptools import Extension, setup

if os.environ.get("ESCROWMQ_PURE", "") in ("", "0"):
    setup(
        ext_modules=[
            Extension(
                "escrowmq.lane._compiled",
                sources=sorted(glob("src/escrowmq/lane/*.c")),
                depends=sorted(glob("src/escrowmq/lane/*.h")),
                py_limited_api=True,
                optional=True,
            )
        ],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
else:
    setup()
