// Reads and writes config.json of T5 1.1 and similar models. Private to models/hf.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// config.json of a Family::kT5 model, without torch_dtype.
nlohmann::json t5_config(const config::Model& model);

/// Reports features that our T5 lacks as faults. scale_decoder_outputs defaults to Transformers' behaviour:
/// true unless tie_word_embeddings is false.
void read_t5(Keys& keys, Settings& settings);

}  // namespace colonnade::models::hf
