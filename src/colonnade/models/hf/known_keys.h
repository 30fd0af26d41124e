// Keys of config.json that decide nothing here, always or at one value. Private to models/hf.
#pragma once

#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Marks as known what no model depends on (bookkeeping, token ids, generation, inference, other heads,
/// weights of training losses) and checks the keys that must have their neutral value. Called after the
/// family has read its own keys.
void pass_over_neutral_keys(Keys& keys);

/// architectures must name a class of `model_type` whose layers and head are ours; missing or empty is fine.
void require_architecture(Keys& keys, const std::string& model_type);

}  // namespace colonnade::models::hf
