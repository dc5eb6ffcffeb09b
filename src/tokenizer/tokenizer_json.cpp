#include "tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "tokenizer/bpe_files.h"
#include "util/error.h"

namespace transnormer {
namespace {

using Kind = JsonNode::Kind;

// One tokenizer.json; each of its parts is asked for what this program does.
class Reader {
 public:
  Reader(const JsonNode& root, const std::string& name)
      : root_(root), name_(name), builder_(name) {}

  BpeVocabulary read() {
    check_model();
    check_steps();
    add_tokens();
    builder_.end_tokens();
    add_merges();
    return builder_.finish();
  }

 private:
  [[nodiscard]] std::string at(const JsonNode& node, const std::string& key) const {
    return name_ + ": line " + std::to_string(node.line) + ": " + key;
  }
  // The member, or null where it is absent or null.
  static const JsonNode* member(const JsonNode& object, const char* key) {
    const JsonNode* found = object.find(key);
    return found != nullptr && found->kind != Kind::null ? found : nullptr;
  }
  static std::string type_of(const JsonNode& object) {
    const JsonNode* type = member(object, "type");
    return type != nullptr && type->kind == Kind::text ? type->text : "";
  }

  void require(bool good, const JsonNode& node, const std::string& key,
               const std::string& expected) const {
    if (!good) {
      const std::string type = type_of(node);
      throw UserError(at(node, key) + ": " + (type.empty() ? node.shown() : printable(type, true)) +
                      " is not supported; expected " + expected);
    }
  }

  void require_flag(const JsonNode& object, const std::string& path, const char* key,
                    bool wanted) const {
    const JsonNode* flag = member(object, key);
    require(flag == nullptr || (flag->kind == Kind::boolean && flag->boolean == wanted),
            flag == nullptr ? object : *flag, path + '.' + key, wanted ? "true" : "false");
  }

  void check_model() const {
    const JsonNode& model = *root_.find("model");
    const std::string type = type_of(model);  // older files have none
    require(type == "BPE" || (type.empty() && member(model, "merges") != nullptr), model, "model",
            "a model of type \"BPE\"");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const JsonNode* affix = member(model, key);
      require(affix == nullptr || (affix->kind == Kind::text && affix->text.empty()),
              affix == nullptr ? model : *affix, std::string("model.") + key, "null");
    }
    const JsonNode* dropout = member(model, "dropout");
    require(dropout == nullptr, dropout == nullptr ? model : *dropout, "model.dropout", "null");
    require_flag(model, "model", "byte_fallback", false);
    require_flag(model, "model", "ignore_merges", false);
  }

  void check_steps() const {
    const JsonNode* normalizer = member(root_, "normalizer");
    require(normalizer == nullptr, normalizer == nullptr ? root_ : *normalizer, "normalizer",
            "null");
    const JsonNode* cut = member(root_, "pre_tokenizer");
    require(cut != nullptr && type_of(*cut) == "ByteLevel", cut == nullptr ? root_ : *cut,
            "pre_tokenizer", "one of type \"ByteLevel\", which cuts by GPT-2's pattern");
    const JsonNode* prefix = member(*cut, "add_prefix_space");  // true where it is not there
    require(prefix != nullptr, *cut, "pre_tokenizer", "\"add_prefix_space\": false in it");
    require_flag(*cut, "pre_tokenizer", "add_prefix_space", false);
    require_flag(*cut, "pre_tokenizer", "use_regex", true);
    for (const char* key : {"post_processor", "decoder"}) {
      const JsonNode* step = member(root_, key);
      require(step == nullptr || type_of(*step) == "ByteLevel", step == nullptr ? root_ : *step,
              key, "null or one of type \"ByteLevel\"");
    }
  }

  void add_tokens() {
    std::vector<std::pair<std::int64_t, const JsonNode*>> added;
    std::unordered_set<std::string> names;
    const JsonNode* list = member(root_, "added_tokens");
    require(list == nullptr || list->kind == Kind::list, list == nullptr ? root_ : *list,
            "added_tokens", "a list");
    const std::vector<JsonNode> none;
    for (const JsonNode& token : list == nullptr ? none : list->items) {
      const JsonNode* id = member(token, "id");
      const JsonNode* content = member(token, "content");
      require(id != nullptr && id->kind == Kind::integer && content != nullptr &&
                  content->kind == Kind::text,
              token, "added_tokens", "objects with an \"id\" and a \"content\"");
      const JsonNode* special = member(token, "special");
      if (special == nullptr || special->kind != Kind::boolean || !special->boolean) {
        throw UserError(at(token, "added_tokens") + ": " + content->shown() +
                        " is no special token, so that it would be found in texts, which is not "
                        "supported; expected \"special\": true");
      }
      names.insert(content->text);
      added.emplace_back(id->integer, content);
    }
    const JsonNode* vocabulary = member(*root_.find("model"), "vocab");
    require(vocabulary != nullptr && vocabulary->kind == Kind::object,
            vocabulary == nullptr ? *root_.find("model") : *vocabulary, "model.vocab", "an object");
    add_vocabulary(*vocabulary, name_, names, builder_);
    for (const auto& [id, content] : added) {
      if (!builder_.has_token(content->text)) {
        builder_.add_token(id, {content->text, content->text, true}, at(*content, "added_tokens"));
      }
    }
  }

  void add_merges() {
    const JsonNode* merges = member(*root_.find("model"), "merges");
    require(merges != nullptr && merges->kind == Kind::list,
            merges == nullptr ? *root_.find("model") : *merges, "model.merges", "a list");
    for (const JsonNode& merge : merges->items) {
      const bool is_pair = merge.kind == Kind::list && merge.items.size() == 2 &&
                           merge.items[0].kind == Kind::text && merge.items[1].kind == Kind::text;
      require(is_pair || merge.kind == Kind::text, merge, "model.merges",
              "\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]");
      const std::string where = at(merge, "model.merges");
      if (is_pair) {
        builder_.add_merge(merge.items[0].text, merge.items[1].text, where);
      } else {
        add_merge_line(merge.text, where, builder_);
      }
    }
  }

  const JsonNode& root_;
  const std::string& name_;
  BpeVocabularyBuilder builder_;
};

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

}  // namespace

void add_vocabulary(const JsonNode& vocabulary, const std::string& name,
                    const std::unordered_set<std::string>& added, BpeVocabularyBuilder& builder) {
  for (const JsonNode& token : vocabulary.items) {
    const std::string where = name + ": line " + std::to_string(token.line);
    if (vocabulary.kind != Kind::object || token.kind != Kind::integer) {
      throw UserError(where + ": expected tokens with their ids, {\"TOKEN\": ID, ..}, found " +
                      token.shown());
    }
    const bool is_added = added.contains(token.key);
    const std::optional<std::string> bytes = is_added ? std::nullopt : spelled_bytes(token.key);
    builder.add_token(token.integer, {token.key, bytes.value_or(token.key), is_added}, where);
  }
}

void add_merge_line(std::string_view line, const std::string& where,
                    BpeVocabularyBuilder& builder) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    throw UserError(where + ": expected two tokens with a space between, found " +
                    printable(line, true));
  }
  builder.add_merge(line.substr(0, space), line.substr(space + 1), where);
}

BpeVocabulary read_tokenizer_json(const JsonNode& root, const std::string& name) {
  return Reader(root, name).read();
}

std::string tokenizer_json(const BpeVocabulary& vocabulary) {
  std::string vocab;
  std::string added;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const BpeToken& token = vocabulary.tokens[id];
    vocab +=
        (id == 0 ? "\n      " : ",\n      ") + quoted(token.spelling) + ": " + std::to_string(id);
    if (token.is_added) {
      added += (added.empty() ? "\n    {\"id\": " : ",\n    {\"id\": ") + std::to_string(id) +
               ", \"content\": " + quoted(token.spelling) +
               ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
               "\"normalized\": false, \"special\": true}";
    }
  }
  std::string merges;
  for (const BpeMerge& merge : vocabulary.merges) {
    const auto spelling = [&](TokenId id) -> const std::string& {
      return vocabulary.tokens[static_cast<std::size_t>(id)].spelling;
    };
    merges += (merges.empty() ? "\n      " : ",\n      ") +
              quoted(spelling(merge.left) + ' ' + spelling(merge.right));
  }
  const std::string byte_level = R"({"type": "ByteLevel", "add_prefix_space": false, )"
                                 R"("trim_offsets": true, "use_regex": true})";
  return R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [)" +
         added + R"(
  ],
  "normalizer": null,
  "pre_tokenizer": )" +
         byte_level + R"(,
  "post_processor": null,
  "decoder": )" +
         byte_level + R"(,
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {)" +
         vocab + R"(
    },
    "merges": [)" +
         merges + R"(
    ]
  }
}
)";
}

}  // namespace transnormer
