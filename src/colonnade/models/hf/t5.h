// config.json of T5 1.1 and its kin, both ways. Private to models/hf.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Of a model whose family is Family::kT5, without its type of weights.
nlohmann::json t5_config(const config::Model& model);

/// Faults for what our T5 does not have. A missing `scale_decoder_outputs` means what Transformers does: true
/// unless tie_word_embeddings is false.
void read_t5(Keys& keys, Settings& settings);

}  // namespace colonnade::models::hf
