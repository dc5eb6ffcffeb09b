"""DIR: each folder in it is an export, with tokens and the logits that are expected of them in a file
`expected`. Prints {name: {"pass": .., "steps": ..}}, the largest difference over the largest logit of
one pass, and of reading in pieces of many sizes."""

import importlib.util
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file


def module_in(folder):
    spec = importlib.util.spec_from_file_location("modeling", folder / "modeling_transnormer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_pieces(module, model, tokens):
    state, logits, begin = module.State(len(model.layers)), [], 0
    for size in (1, 3, 1, 10, 1, 1, 25, tokens.shape[1]):
        if begin < tokens.shape[1]:
            logits.append(model(tokens[:, begin:begin + size], state))
            begin += size
    return torch.cat(logits, 1)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    errors = {}
    for folder in sorted(p for p in pathlib.Path(sys.argv[1]).iterdir() if p.is_dir()):
        module = module_in(folder)
        model = module.load(folder)
        expected = load_file(folder / "expected")
        tokens, logits = expected["tokens"], expected["logits"]
        largest = logits.abs().max().item()
        errors[folder.name] = {
            name: (got - logits).abs().max().item() / largest
            for name, got in (("pass", model(tokens)), ("steps", in_pieces(module, model, tokens)))}
    print(json.dumps(errors))


main()
