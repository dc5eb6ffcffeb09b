#include "config/aliases.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string_view>

namespace transnormer {
namespace {

struct Alias {
  std::string_view words;  // separated by spaces
  std::array<const char*, 3> keys;
};

constexpr auto kAliases = std::to_array<Alias>({
    {"learning_rate max_lr peak_lr", {"optimizer.lr"}},
    {"max_steps num_steps n_steps iterations max_iters num_iters iters max_update updates "
     "total_steps train_steps max_train_steps",
     {"train.steps"}},
    {"epochs num_epochs n_epochs max_epoch epoch num_train_epochs", {"train.max_epochs"}},
    {"batch_size batch bsz train_batch_size",
     {"train.global_batch_size", "train.micro_batch_size", "validation.batch_size"}},
    {"per_device_batch_size per_device_train_batch_size device_batch_size micro_batch microbatch",
     {"train.micro_batch_size"}},
    {"eval_batch_size valid_batch_size per_device_eval_batch_size", {"validation.batch_size"}},
    {"seq_len seq_length sequence_length max_seq_len max_seq_length max_length block_size "
     "context_length context_size bptt",
     {"data.tokens_per_sample"}},
    {"hidden_size hidden_dim d_model n_embd embed_dim embedding_dim model_dim width",
     {"model.dim"}},
    {"n_layer n_layers num_layers num_hidden_layers depth", {"model.layers"}},
    {"n_head n_heads num_heads num_attention_heads", {"model.heads"}},
    {"intermediate_size ffn_hidden_size d_ff mlp_dim", {"model.ffn_dim"}},
    {"attn attention_type", {"model.early.attention", "model.late.attention"}},
    {"arch", {"model.variant"}},
    {"optim optimizer", {"optimizer.name"}},
    {"wd", {"optimizer.weight_decay"}},
    {"clip grad_clip gradient_clip max_grad_norm clip_grad clip_grad_norm gradient_clipping",
     {"optimizer.clip_norm"}},
    {"schedule scheduler lr_schedule lr_scheduler lr_scheduler_type", {"schedule.name"}},
    {"warmup warmup_updates warmup_iters num_warmup_steps", {"schedule.warmup_steps"}},
    {"eval_every eval_interval eval_steps val_interval validate_interval valid_every val_every",
     {"validation.every"}},
    {"save_every save_interval save_steps checkpoint_every", {"checkpoint.every"}},
    {"log_every log_interval logging_steps", {"log.every"}},
    {"early_stopping early_stopping_patience", {"validation.patience"}},
    {"save_total_limit", {"checkpoint.keep_last"}},
    {"gradient_checkpointing grad_checkpointing", {"train.activation_checkpointing"}},
    {"train_data train_file data", {"data.train"}},
    {"valid_data validation_file val_data", {"data.valid"}},
    {"test_data test_file", {"data.test"}},
    {"name", {"run_name", "optimizer.name", "schedule.name"}},
    {"random_seed", {"train.seed"}},
    {"num_threads", {"train.threads"}},
    {"dtype mixed_precision", {"train.precision"}},
    {"max_time time_limit hours", {"train.max_hours"}},
    {"init_checkpoint finetune_from pretrained", {"train.init_from"}},
});

std::vector<std::string> words_of(const Alias& alias) {
  std::istringstream stream{std::string(alias.words)};
  return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace

std::vector<std::string> keys_called(std::string word) {
  std::replace(word.begin(), word.end(), '-', '_');
  std::vector<std::string> keys;
  for (const Alias& alias : kAliases) {
    const std::vector<std::string> words = words_of(alias);
    if (std::find(words.begin(), words.end(), word) != words.end()) {
      std::copy_if(alias.keys.begin(), alias.keys.end(), std::back_inserter(keys),
                   [](const char* key) { return key != nullptr; });
    }
  }
  return keys;
}

std::vector<std::string> all_aliases() {
  std::vector<std::string> all;
  for (const Alias& alias : kAliases) {
    const std::vector<std::string> words = words_of(alias);
    all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

}  // namespace transnormer
