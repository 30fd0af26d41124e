// Keys of config.json without effect here, always or at one value. Private to models/hf.
#pragma once

#include "colonnade/models/hf/family.h"

namespace colonnade::models::hf {

/// Marks keys as known that no model depends on (bookkeeping, token ids, generation, inference, other heads,
/// training loss weights) and checks those that must have their neutral value. Called after the family has
/// read its own keys.
void ignore_neutral_keys(Keys& keys);

/// architectures must name a supported class of the model_type; missing or empty is accepted.
void require_architecture(Keys& keys, const ModelType& type);

}  // namespace colonnade::models::hf
