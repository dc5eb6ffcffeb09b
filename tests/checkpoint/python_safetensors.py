"""The other side of the safetensors tests: Python's own library.

read FILE: prints {name: [dtype, shape, values]} as JSON. write FILE: makes a small file.
"""

import json
import sys

import numpy
from safetensors import safe_open
from safetensors.numpy import save_file


def read(path):
    found = {}
    with safe_open(path, framework="numpy") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            found[name] = [str(tensor.dtype), list(tensor.shape), tensor.flatten().tolist()]
    print(json.dumps(found))


def write(path):
    save_file({
        "weight": numpy.arange(6, dtype=numpy.float32).reshape(2, 3) / 4,
        "steps": numpy.array([2**40, -1], dtype=numpy.int64),
    }, path, metadata={"made by": "a test"})


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](sys.argv[2])
