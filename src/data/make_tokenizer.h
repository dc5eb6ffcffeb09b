// Where the tokenizer of a run comes from: a file that the config names, or the training text.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "data/file_digests.h"
#include "tokenizer/tokenizer.h"

namespace transnormer {

// Makes the tokenizer that the config describes from data.train, whatever tokenizer.path says.
// Returns the bytes of its file: a dictionary or a sentencepiece model.
[[nodiscard]] std::string make_tokenizer(const Config& config, bool progress);

// The file at tokenizer.path, which must be of tokenizer.type; else the one made from data.train,
// kept in the cache directory under the digest of text and settings.
[[nodiscard]] std::shared_ptr<const Tokenizer> obtain_tokenizer(const Config& config,
                                                                FileDigests& digests,
                                                                bool progress);

// The same where nothing has to be made: null where the cache does not hold it, or the text is not
// there. Writes nothing.
[[nodiscard]] std::shared_ptr<const Tokenizer> find_tokenizer(const Config& config,
                                                              FileDigests& digests);

}  // namespace transnormer
