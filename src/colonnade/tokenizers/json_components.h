// Readers of the components of a tokenizer.json, except its model.
#pragma once

#include <functional>
#include <vector>

#include "colonnade/tokenizers/decoder.h"
#include "colonnade/tokenizers/json_view.h"
#include "colonnade/tokenizers/normalizer.h"
#include "colonnade/tokenizers/post_processor.h"
#include "colonnade/tokenizers/pre_tokenizer.h"

namespace colonnade::tokenizers {

// Each appends the components of the value, with sequences flattened. They throw DataError with the JSON path
// for an unknown type, key or value.
void read_normalizer(const JsonView& json, std::vector<Normalizer>& normalizers);
void read_pre_tokenizer(const JsonView& json, std::vector<PreTokenizer>& steps);
void read_decoder(const JsonView& json, std::vector<Decoder>& decoders);
/// `vocab_size`: upper bound of special ids.
PostProcessor read_post_processor(const JsonView& json, std::int64_t vocab_size);

}  // namespace colonnade::tokenizers
