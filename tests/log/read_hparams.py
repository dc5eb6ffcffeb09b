"""Prints what TensorBoard's plugin of hyper-parameters answers about the runs below a directory, as
JSON: what its HPARAMS tab shows."""

import json
import sys

from google.protobuf import json_format
from tensorboard import context
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing import plugin_event_multiplexer as multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import backend_context
from tensorboard.plugins.hparams import get_experiment
from tensorboard.plugins.hparams import list_session_groups


def main():
    runs = multiplexer.EventMultiplexer().AddRunsFromDirectory(sys.argv[1]).Reload()
    provider = data_provider.MultiplexerDataProvider(runs, sys.argv[1])
    hparams = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    asked = (context.RequestContext(), hparams, "")
    experiment = get_experiment.Handler(*asked, api_pb2.GetExperimentRequest()).run()
    every = [api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE]
    groups = list_session_groups.Handler(
        *asked, api_pb2.ListSessionGroupsRequest(allowed_statuses=every, slice_size=100)).run()
    print(json.dumps({
        "differ": [info.name for info in experiment.hparam_infos if info.differs],
        "metrics": [info.name.tag for info in experiment.metric_infos],
        "runs": {group.name: {
            "settings": {key: json_format.MessageToDict(value)
                         for key, value in group.hparams.items()},
            "sessions": len(group.sessions),
            "status": api_pb2.Status.Name(group.sessions[0].status),
            "metrics": {value.name.tag: [value.training_step, value.value]
                        for value in group.metric_values},
        } for group in groups.session_groups},
    }))


if __name__ == "__main__":
    main()
