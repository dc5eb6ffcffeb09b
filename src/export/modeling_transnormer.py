"""A TransNormer language model in PyTorch: the one whose weights lie beside this file.

    import modeling_transnormer                       # this file, in the folder of the export
    model = modeling_transnormer.load("the folder")   # needs torch, nothing else
    print(model.continue_text("In the beginning", 50))

    from transformers import AutoModelForCausalLM     # or as one of transformers' models
    model = AutoModelForCausalLM.from_pretrained("the folder", trust_remote_code=True)

"The Devil in Linear Transformer" (Qin et al., EMNLP 2022). This file tells what each number in
model.safetensors means: names of tensors there are attributes here.

Conventions, from text to logits
  Text     Lines end at "\\n" only. With line_end "eos" each gives its tokens and then the end token;
           a last line that no "\\n" ends is open and gets none. With "keep" the "\\n" is text.
  Ids      bos_token_id is the first input of every stream: nothing is predicted for it. For word
           dictionaries and the sentencepiece models that this program makes: 0 begin, 1 padding,
           2 end (and first input), 3 unknown. vocab_size may be above the number of tokens.
  Logits   logits[:, t] tell the token after input t. The model was trained on windows of
           tokens_per_sample inputs, positions 0, 1, .. in each.
  Stream   x = embed.weight[id] * sqrt(dim) + position; then layers (see Layer); then, with pre-norm,
           final_norm; logits = x @ W^T (+ output.bias), W = embed.weight where tied, else
           output.weight. The stream x, norms, softmax and sums of linear attention are in single
           precision, whatever the weights are in.
"""

import json
import math
import os
import re
import shutil

import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 128  # tokens of linear attention that meet by their products; the rest meets by sums

ACTIVATIONS = {"silu": F.silu, "relu": F.relu, "gelu": F.gelu, "none": lambda x: x}
FEATURES = {"elu1": lambda x: F.elu(x) + 1, "elu": F.elu, "relu": F.relu, "silu": F.silu,
            "exp": torch.exp}
GATES = {"linear": lambda x: x, "silu": F.silu, "sigmoid": torch.sigmoid}


class Norm(nn.Module):
    """srms: x / sqrt(mean(x^2) + eps), no gain. rms: the same times weight. layer: LayerNorm. none: x."""

    def __init__(self, kind, dim, eps):
        super().__init__()
        self.kind, self.eps = kind, eps
        if kind in ("rms", "layer"):
            self.weight = nn.Parameter(torch.ones(dim))
        if kind == "layer":
            self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        x = x.float()
        if self.kind == "none":
            return x
        if self.kind == "layer":
            return F.layer_norm(x, x.shape[-1:], self.weight.float(), self.bias.float(), self.eps)
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x * self.weight.float() if self.kind == "rms" else x


class Lrpe(nn.Module):
    """Linearised relative positional encoding, the same map of queries and keys of all heads: the
    reflection y = x - 2 (x.u) u along the frozen unit vector u = reflect, then a rotation of each
    pair (2i, 2i+1) by the angle position * theta_i, theta learned. q.k then depends on the distance
    only. With linear attention it comes after the feature map, so that weights may be negative."""

    def __init__(self, head_dim):
        super().__init__()
        self.theta = nn.Parameter(10000 ** (torch.arange(head_dim // 2) * (-2 / head_dim)))
        self.register_buffer("reflect", F.normalize(torch.ones(head_dim), dim=0))

    def forward(self, x, positions):
        """x: [batch, heads, time, head_dim]; positions: [time], whole numbers."""
        u = self.reflect.to(x.dtype)
        x = x - 2 * (x @ u)[..., None] * u
        angle = positions.double()[:, None] * self.theta.double()
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def pieces(position, time, size):
    """(begin, end) of parts of `time` tokens that begin at `position` of the sequence: each ends where
    the sequence's position is a multiple of `size`, or at the end."""
    begin = 0
    while begin < time:
        end = min(time, begin + size - (position + begin) % size)
        yield begin, end
        begin = end


def causal_mask(queries, keys, device):
    """[queries, keys], the last of both at the same place: True where a query sees the key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


class Attention(nn.Module):
    """out_proj(norm(attend(q_proj(x), k_proj(x), v_proj(x)))). Head h has the h-th part of each
    projection's outputs. `state` holds what a layer remembers of the tokens before x."""

    def __init__(self, config, settings, index, key_dim):
        super().__init__()
        dim, self.heads, self.settings = config["dim"], config["heads"], settings
        self.q_proj, self.k_proj = nn.Linear(dim, key_dim), nn.Linear(dim, key_dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.lrpe = Lrpe(key_dim // self.heads) if config["lrpe"] else None
        self.output_norm = Norm(settings.get("output_norm", "none"), dim, config["norm_eps"])
        self.gate = GATES.get(settings.get("gate", "none"))
        if self.gate is not None:
            self.gate_proj = nn.Linear(dim, dim)
        self.dropout = config["attention_dropout"]

    def forward(self, x, state, position):
        q, k, v = (projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        merged = self.attend(q, k, v, state, position).transpose(1, 2).flatten(2)
        y = self.output_norm(merged)  # of all heads together
        if self.gate is not None:
            y = y * self.gate(self.gate_proj(x))
        return self.out_proj(y.to(x.dtype))

    def encoded(self, x, position, period=0):
        """LRPE, with positions from `position` on, or their remainders by the period."""
        if self.lrpe is None:
            return x
        positions = torch.arange(position, position + x.shape[2], device=x.device)
        return self.lrpe(x, positions % period if period else positions)

    def scored(self, q, k, v, score="softmax"):
        """Of queries that are the last of the keys' tokens. relu (ReLA) has no sum to divide by."""
        scores = (q * q.shape[-1] ** -0.5 @ k.mT).float()
        unseen = ~causal_mask(q.shape[2], k.shape[2], q.device)
        if score == "softmax":
            weights = scores.masked_fill(unseen, -math.inf).softmax(-1)
        else:
            weights = scores.masked_fill(unseen, 0).relu()
        return F.dropout(weights, self.dropout, self.training).to(v.dtype) @ v


class SoftmaxAttention(Attention):
    """softmax(q.k / sqrt(head_dim)) over all tokens before. State: all keys and values."""

    def attend(self, q, k, v, state, position):
        q, k = self.encoded(q, position), self.encoded(k, position)
        if "k" in state:
            k, v = torch.cat((state["k"], k), 2), torch.cat((state["v"], v), 2)
        state["k"], state["v"] = k, v
        return self.scored(q, k, v)


class DiagAttention(Attention):
    """The same inside blocks that do not overlap and start at multiples of `block`: the first token of
    a block sees itself only. LRPE counts from the block's start. State: the block begun."""

    def attend(self, q, k, v, state, position):
        block, score = self.settings["block"], self.settings["score"]
        q, k = self.encoded(q, position, block), self.encoded(k, position, block)
        outputs = []
        for begin, end in pieces(position, q.shape[2], block):
            keys, values = k[:, :, begin:end], v[:, :, begin:end]
            if (position + begin) % block:
                keys = torch.cat((state["k"], keys), 2)
                values = torch.cat((state["v"], values), 2)
            state["k"], state["v"] = keys, values
            outputs.append(self.scored(q[:, :, begin:end], keys, values, score))
        return torch.cat(outputs, 2)


class LinearAttention(Attention):
    """`norm` and `linear`: o_t = sum over s <= t of decay^(t-s) (phi(q_t).phi(k_s)) v_s, phi a feature
    map of each number, no 1/sqrt(head_dim); queries and keys go through phi and then through LRPE.

    norm    no denominator; the norm of the merged heads tames the sum. decay "fixed": head h (from 1)
            of H in layer l (from 0) of L fades by exp(-2^(-8h/H) (1 - l/(L-1) + 1e-5)) a token.
            gate: times act(gate_proj(x)) behind the norm, x what the attention was given.
    linear  with `denominator` divided by max(sum of phi(q_t).phi(k_s), 1e-6), features without LRPE;
            `exp` there is exact: nothing but ratios counts, so each query is shifted by its own
            maximum, in double precision. window: the last so many tokens only.

    State: S = sum of phi(k) v^T, a matrix a head, and z = sum of phi(k); with a window the last keys."""

    def __init__(self, config, settings, index, key_dim):
        super().__init__(config, settings, index, key_dim)
        self.features, self.window = FEATURES[settings["kernel"]], settings.get("window", 0)
        self.divides = settings.get("denominator", False)
        self.exact = self.divides and settings["kernel"] == "exp"
        self.depth = 1 - index / max(config["layers"] - 1, 1) + 1e-5
        self.decays = settings.get("decay", "none") == "fixed"

    def fading(self, device, tokens):
        """decay^tokens, [heads, *tokens.shape]."""
        head = torch.arange(1, self.heads + 1, dtype=torch.float64, device=device)
        slope = 2 ** (-8 * head / self.heads) * self.depth * float(self.decays)
        return torch.exp(-slope.view(-1, *(1,) * tokens.dim()) * tokens)

    def attend(self, q, k, v, state, position):
        wide = torch.float64 if self.exact else torch.float32
        q, k, v = q.to(wide), k.to(wide), v.to(wide)
        if self.exact:
            q = q - q.amax(-1, keepdim=True)
        plain_q, plain_k = self.features(q), self.features(k)
        q, k = self.encoded(plain_q, position), self.encoded(plain_k, position)
        part = self.in_window if self.window else self.by_sums
        outputs = []
        for begin, end in pieces(position, q.shape[2], CHUNK):
            here = [x[:, :, begin:end] for x in (q, k, v, plain_q, plain_k)]
            sums, weights = part(*here, state)
            if self.divides:
                sums = sums / (weights if self.exact else weights.clamp_min(1e-6))
            outputs.append(sums)
        return torch.cat(outputs, 2).float()

    def by_sums(self, q, k, v, plain_q, plain_k, state):
        """The weighted sum of values, and the sum of weights."""
        time = q.shape[2]
        S = state["S"] if "S" in state else q.new_zeros(*k.shape[:2], k.shape[3], v.shape[3])
        z = state["z"] if "z" in state else q.new_zeros(*k.shape[:2], k.shape[3])
        place = torch.arange(time, device=q.device)
        distance = (place[:, None] - place).clamp(min=0)
        inside, before, to_end = (self.fading(q.device, d).to(q.dtype)
                                  for d in (distance, place + 1, time - 1 - place))
        out = (q @ k.mT * inside).tril() @ v + q * before[..., None] @ S
        weights = (plain_q @ plain_k.mT).tril().sum(-1) + (plain_q @ z[..., None])[..., 0]
        state["S"] = before[:, -1, None, None] * S + (k * to_end[..., None]).mT @ v
        state["z"] = z + plain_k.sum(2)
        return out, weights[..., None]

    def in_window(self, q, k, v, plain_q, plain_k, state):
        """Each token sees itself and window - 1 before it."""
        if "kept" in state:
            k, v, plain_k = (torch.cat(pair, 2) for pair in zip(state["kept"], (k, v, plain_k)))
        first = max(k.shape[2] - self.window + 1, 0)
        state["kept"] = tuple(x[:, :, first:] for x in (k, v, plain_k))
        seen = causal_mask(q.shape[2], k.shape[2], q.device)
        seen = seen ^ seen.tril(k.shape[2] - q.shape[2] - self.window)
        return (q @ k.mT * seen) @ v, (plain_q @ plain_k.mT * seen).sum(-1, keepdim=True)


ATTENTIONS = {"diag": DiagAttention, "linear": LinearAttention, "norm": LinearAttention,
              "softmax": SoftmaxAttention}


class Ffn(nn.Module):
    """glu: down_proj(act(gate_proj(x)) * up_proj(x)). mlp: fc2(act(fc1(x)))."""

    def __init__(self, config):
        super().__init__()
        dim, width = config["dim"], config["ffn_dim"]
        self.activation, self.gated = ACTIVATIONS[config["ffn_activation"]], config["ffn"] == "glu"
        if self.gated:
            self.gate_proj, self.up_proj = nn.Linear(dim, width), nn.Linear(dim, width)
            self.down_proj = nn.Linear(width, dim)
        else:
            self.fc1, self.fc2 = nn.Linear(dim, width), nn.Linear(width, dim)

    def forward(self, x):
        if self.gated:
            return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return self.fc2(self.activation(self.fc1(x)))


class Layer(nn.Module):
    """pre-norm: x + attn(attn_norm(x)), then x + ffn(ffn_norm(x)). post-norm: norm(x + part(x)).
    The first early_layers layers have the attention `early`, the others `late`."""

    def __init__(self, config, index):
        super().__init__()
        settings = config["early"] if index < config["early_layers"] else config["late"]
        name = settings["attention"]
        if name not in ATTENTIONS:
            raise ValueError(f'attention "{name}" is unknown, expected {", ".join(ATTENTIONS)}')
        key_dim = config["dim"] * settings.get("key_dim_factor", 1)
        self.attn = ATTENTIONS[name](config, settings, index, key_dim)
        self.attn_norm = Norm(config["norm"], config["dim"], config["norm_eps"])
        self.ffn = Ffn(config)
        self.ffn_norm = Norm(config["norm"], config["dim"], config["norm_eps"])
        self.pre, self.dropout = config["norm_placement"] == "pre", config["dropout"]

    def forward(self, x, state, position):
        compute = self.attn.q_proj.weight.dtype
        for norm, part in ((self.attn_norm, lambda y: self.attn(y, state, position)),
                           (self.ffn_norm, self.ffn)):
            y = part((norm(x) if self.pre else x).to(compute)).float()
            x = x + F.dropout(y, self.dropout, self.training)
            x = x if self.pre else norm(x)
        return x


class State:
    """What decoding remembers: how many tokens the model has read, and what each layer keeps."""
    def __init__(self, layers):
        self.position, self.layers = 0, [{} for _ in range(layers)]


class Body:
    """The model, to be mixed into a module: TransNormer below, and the one for transformers."""

    def build(self, config):
        dim, eps = config["dim"], config["norm_eps"]
        self.settings = config
        self.embed = nn.Embedding(config["vocab_size"], dim)
        if config["position"] == "learned":
            self.position = nn.Embedding(config["tokens_per_sample"], dim)
        self.embed_norm = Norm(config["embed_norm"], dim, eps)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config["layers"]))
        pre = config["norm_placement"] == "pre"
        self.final_norm = Norm(config["norm"] if pre else "none", dim, eps)
        self.output = nn.Module()
        if not config["tie_embeddings"]:
            self.output.weight = nn.Parameter(torch.empty(config["vocab_size"], dim))
        if config["output_bias"]:
            self.output.bias = nn.Parameter(torch.zeros(config["vocab_size"]))

    def positions(self, first, time, device):
        """[time, dim]. sinusoidal: row t has sin(n f_i), i < dim/2, then cos(n f_i), with n = t + 2 and
        f_i = 10000^(-i / (dim/2 - 1)); it goes on past the training length."""
        if self.settings["position"] == "learned":
            if first + time > len(self.position.weight):
                raise ValueError(f"{first + time} tokens, {len(self.position.weight)} positions")
            return self.position.weight[first:first + time].float()
        dim = self.settings["dim"]
        half = dim // 2
        frequency = torch.exp(torch.arange(half, dtype=torch.float64, device=device)
                              * (-math.log(10000) / max(half - 1, 1)))
        number = torch.arange(first + 2, first + 2 + time, dtype=torch.float64, device=device)
        angle = number[:, None] * frequency
        return F.pad(torch.cat((angle.sin(), angle.cos()), 1).float(), (0, dim % 2))

    def read(self, ids, state=None):
        """[batch, time] -> the stream behind the last norm, [batch, time, dim]. With a State it goes on
        from what that has seen, and brings it up to date."""
        state = State(len(self.layers)) if state is None else state
        x = self.embed(ids).float() * math.sqrt(self.settings["dim"])
        if self.settings["position"] != "none":
            x = x + self.positions(state.position, ids.shape[1], ids.device)
        x = F.dropout(self.embed_norm(x), self.settings["dropout"], self.training)
        for layer, kept in zip(self.layers, state.layers):
            x = layer(x, kept, state.position)
        state.position += ids.shape[1]
        return self.final_norm(x)

    def logits(self, x):
        weight = self.embed.weight if self.settings["tie_embeddings"] else self.output.weight
        return F.linear(x.to(weight.dtype), weight, getattr(self.output, "bias", None)).float()


class TransNormer(Body, nn.Module):
    """With PyTorch alone. `config`: the content of config.json; see load()."""

    def __init__(self, config, tokenizer=None):
        super().__init__()
        self.build(config)
        self.tokenizer = tokenizer

    def forward(self, ids, state=None):
        """ids: [batch, time] -> logits [batch, time, vocab_size]."""
        return self.logits(self.read(ids, state))

    @torch.no_grad()
    def generate(self, ids, max_new_tokens, temperature=0.0, generator=None):
        """ids: [batch, time], from the first input on -> [batch, max_new_tokens]. Temperature 0: the most
        likely tokens. Each token is read once; what linear attention keeps does not grow."""
        state, chosen = State(len(self.layers)), []
        for _ in range(max_new_tokens):
            last = self.logits(self.read(ids, state)[:, -1])
            ids = (last.argmax(-1, keepdim=True) if temperature == 0 else
                   (last / temperature).softmax(-1).multinomial(1, generator=generator))
            chosen.append(ids)
        return torch.cat([ids[:, :0], *chosen], 1)

    def continue_text(self, text, max_new_tokens, temperature=0.0):
        ids = [self.settings["bos_token_id"], *self.encode(text)]
        new = self.generate(torch.tensor([ids], device=self.embed.weight.device), max_new_tokens,
                            temperature)
        return self.decode([*ids[1:], *new[0].tolist()])

    def encode(self, text):
        return self.tokenizer.encode(text)

    def decode(self, ids):
        return self.tokenizer.decode(ids)


# Text. Each tokenizer has encode_line(line) -> ids, without a line end, and decode_line(ids) -> text.

class WordDictionary:
    """Words between spaces; tokenizer.txt has one "word count" a line, in the order of the ids from 4
    on. What is no word of it is <unk>, and bytes that are no UTF-8 survive as in os.fsdecode()."""

    def __init__(self, path):
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        words = [line.split(" ", 1)[0] for line in text.split("\n") if line]
        self.pieces = ["<s>", "<pad>", "</s>", "<unk>", *words]
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}

    def encode_line(self, line):
        return [self.ids.get(word, 3) for word in line.split(" ") if word]

    def decode_line(self, ids):
        return " ".join(self.pieces[i] for i in ids)


class SentencePieces:
    """tokenizer.model, read by the package sentencepiece."""

    def __init__(self, path):
        self.model = __import__("sentencepiece").SentencePieceProcessor(model_file=path)
        self.pieces = [self.model.id_to_piece(i) for i in range(self.model.get_piece_size())]

    def encode_line(self, line):
        return self.model.encode(line)

    def decode_line(self, ids):
        return self.model.decode(ids)


class BytePairs:
    """tokenizer.json, read by the package tokenizers. Specials in a text are ordinary text."""

    def __init__(self, path):
        self.model = __import__("tokenizers").Tokenizer.from_file(path)
        self.pieces = [self.model.id_to_token(i) for i in range(self.model.get_vocab_size())]
        self.model.encode_special_tokens = True

    def encode_line(self, line):
        return self.model.encode(line, add_special_tokens=False).ids

    def decode_line(self, ids):
        return self.model.decode(ids, skip_special_tokens=False)


TOKENIZERS = {"tokenizer.txt": WordDictionary, "tokenizer.model": SentencePieces,
              "tokenizer.json": BytePairs}


class Text:
    """Whole texts by a tokenizer of lines, as training and `transnormer generate` read them."""

    def __init__(self, path, line_end, strip_cr, end=None, unknown=None):
        self.lines = TOKENIZERS[os.path.basename(path)](path)
        self.line_end, self.strip_cr, self.end, self.unknown = line_end, strip_cr, end, unknown

    def encode(self, text):
        text = text.removeprefix("\ufeff")
        if self.strip_cr:
            text = re.sub(r"\r+(?=\n|\Z)", "", text)
        if self.line_end == "keep":
            return self.lines.encode_line(text)
        end = [self.end] if self.line_end == "eos" and self.end is not None else []
        *closed, last = text.split("\n")
        ids = [i for line in closed for i in self.lines.encode_line(line) + end]
        return ids + self.lines.encode_line(last)

    def decode(self, ids):
        """An end token shows as a line end; ids that the tokenizer does not have as unknown."""
        lines = [[]]
        for i in ids:
            if i == self.end:
                lines.append([])
            else:
                lines[-1].append(i if i < len(self.lines.pieces) else self.unknown)
        return "\n".join(self.lines.decode_line(line) for line in lines)


def load_text(directory, config):
    path = next(path for name in TOKENIZERS if os.path.exists(path := f"{directory}/{name}"))
    return Text(path, config["line_end"], config["strip_cr"], config["eos_token_id"],
                config["unk_token_id"])


def read_weights(path):
    """A safetensors file: the header's size (8 bytes, little-endian), the header (JSON: each tensor's
    type, shape and place behind the header), the numbers, here all in single precision."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    data = torch.from_file(path, size=os.path.getsize(path), dtype=torch.uint8)[8 + size:]
    return {name: data[slice(*entry["data_offsets"])].clone().view(torch.float32).view(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def load(directory, device="cpu", dtype=torch.float32):
    """The exported model, to be used (eval mode), with its tokenizer."""
    with open(f"{directory}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with torch.device("meta"):
        model = TransNormer(config, load_text(directory, config))
    model.load_state_dict(read_weights(f"{directory}/model.safetensors"), assign=True)
    for part in model.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)) or part is model.output:
            part.to(dtype)  # norms and angles stay in single precision
    return model.to(device).eval()


try:
    from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel, PreTrainedTokenizer
    from transformers.modeling_outputs import CausalLMOutput
except ImportError:
    pass
else:
    class TransNormerConfig(PretrainedConfig):
        model_type = "transnormer"
        attribute_map = {"hidden_size": "dim", "num_hidden_layers": "layers",
                         "num_attention_heads": "heads", "intermediate_size": "ffn_dim"}

    class TransNormerForCausalLM(Body, PreTrainedModel, GenerationMixin):
        """generate() reads all of the text anew for each token, since it may reorder and extend texts in
        ways that a running sum does not follow; TransNormer.generate() does not."""

        config_class = TransNormerConfig
        _keep_in_fp32_modules_strict = ["lrpe"]

        def __init__(self, config):
            super().__init__(config)
            self.build(config.to_dict())
            self.post_init()

        def _init_weights(self, module):
            """All of them are in the file."""

        def get_input_embeddings(self):
            return self.embed

        def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **_):
            return {"input_ids": input_ids, "attention_mask": attention_mask, "logits_to_keep": 1}

        def forward(self, input_ids, attention_mask=None, labels=None, logits_to_keep=0, **_):
            """Padding on either side may be masked. labels: as input_ids; those of -100 do not count."""
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            ids, back = without_padding_before(input_ids, mask.bool())
            x = self.read(ids)
            x = x.gather(1, back[..., None].expand_as(x))
            logits = self.logits(x[:, -logits_to_keep:])
            loss = None if labels is None else F.cross_entropy(logits[:, :-1].mT, labels[:, 1:])
            return CausalLMOutput(loss=loss, logits=logits)

    def without_padding_before(ids, mask):
        """Rows turned so that they begin with their first token, and the places to turn them back:
        positions count from there, and what stands behind a text changes nothing in it."""
        time = ids.shape[1]
        first = mask.long().argmax(1, keepdim=True)
        place = torch.arange(time, device=ids.device)
        if not torch.equal(mask, (place >= first) & (place < first + mask.sum(1, keepdim=True))):
            raise ValueError("attention_mask: only padding before or behind a text can be masked")
        return ids.gather(1, (place + first) % time), (place - first) % time

    class TransNormerTokenizer(PreTrainedTokenizer):
        """Text for transformers. Each text begins with the first input (bos_token)."""

        vocab_files_names = {name.replace(".", "_"): name for name in TOKENIZERS}
        model_input_names = ["input_ids", "attention_mask"]

        def __init__(self, line_end="eos", strip_cr=False, **kwargs):
            paths = [kwargs.pop(key, None) for key in self.vocab_files_names]
            self.path = next(path for path in paths if path)
            self.text = Text(self.path, line_end, strip_cr)
            self.pieces = self.text.lines.pieces
            self.ids = {piece: i for i, piece in enumerate(self.pieces)}
            super().__init__(line_end=line_end, strip_cr=strip_cr, **kwargs)
            self.text.unknown = self.ids[self.unk_token]
            self.text.end = self.ids.get(self.eos_token)

        @property
        def vocab_size(self):
            return len(self.pieces)

        def get_vocab(self):
            return dict(self.ids)

        def _tokenize(self, text, **_):
            return [self.pieces[i] for i in self.text.encode(text)]

        def _convert_token_to_id(self, token):
            return self.ids.get(token, self.text.unknown)

        def _convert_id_to_token(self, index):
            return self.pieces[index] if index < len(self.pieces) else self.unk_token

        def build_inputs_with_special_tokens(self, token_ids_0, token_ids_1=None):
            return [self.bos_token_id, *token_ids_0, *(token_ids_1 or [])]

        def _decode(self, token_ids, skip_special_tokens=False, **_):
            """Without special tokens: without the first input, padding and line ends."""
            ids = [token_ids] if isinstance(token_ids, int) else [int(i) for i in token_ids]
            skipped = self.all_special_ids if skip_special_tokens else []
            return self.text.decode([i for i in ids if i not in skipped])

        def save_vocabulary(self, save_directory, filename_prefix=None):
            path = os.path.join(save_directory, os.path.basename(self.path))
            if os.path.abspath(path) != os.path.abspath(self.path):
                shutil.copyfile(self.path, path)
            return (path,)
