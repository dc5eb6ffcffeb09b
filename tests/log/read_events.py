"""Prints what TensorBoard's own reader finds in a directory of event files, as JSON.

EventFileLoader checks every record's checksums; EventAccumulator applies the session-start marks.
"""

import json
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader


def histogram(proto):
    return {
        "min": proto.min, "max": proto.max, "num": proto.num, "sum": proto.sum,
        "sum_squares": proto.sum_squares,
        "limits": list(proto.bucket_limit), "counts": list(proto.bucket),
    }


def main():
    directory = pathlib.Path(sys.argv[1])
    raw = [list(EventFileLoader(str(path)).Load()) for path in sorted(directory.iterdir())]
    keep_all = {"scalars": 0, "histograms": 0, "compressedHistograms": 0, "tensors": 0}
    events = EventAccumulator(str(directory), size_guidance=keep_all).Reload()
    tags = events.Tags()
    print(json.dumps({
        "versions": [file[0].file_version for file in raw],
        "events": [len(file) for file in raw],
        "texts": {
            tag: [[e.step, e.tensor_proto.string_val[0].decode()] for e in events.Tensors(tag)]
            for tag in tags["tensors"]
            if events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
        },
        "scalars": {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]},
        "histograms": {
            tag: [[e.step, histogram(e.histogram_value)] for e in events.Histograms(tag)]
            for tag in tags["histograms"]
        },
    }))


if __name__ == "__main__":
    main()
