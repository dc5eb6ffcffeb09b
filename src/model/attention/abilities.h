// What an attention can be part of.
#pragma once

namespace transnormer {

// A constant of its settings, kAbilities, which may be narrowed by a function of them, abilities().
struct Abilities {
  bool causal = true;              // a token sees nothing behind it
  bool bidirectional = true;       // a token sees all of its sequence
  bool decodes = true;             // goes on from a state, token by token
  bool lrpe = true;                // has model.lrpe's positions; else it takes no part in them
  bool part = true;                // may be a part of another attention
  bool separate_queries = true;    // queries may come from elsewhere than keys and values
  bool sequence_parallel = false;  // works where each rank has a part of the sequence
};

// How an attention's scores s become the weights p of the values, for analysis.
enum class Weighting {
  other,
  softmax,       // p = exp(s) / sum exp(s)
  linear,        // p = s / sum s
  unnormalised,  // p = s, or s where it is positive
};

}  // namespace transnormer
