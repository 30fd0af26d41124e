// The classes that a pickle may name. Private to pickle.
#pragma once

#include <string_view>

namespace colonnade::pickle {

/// Whether a pickle of Megatron, NeMo, torchtitan or torch.distributed.checkpoint may name "module.name".
/// Their objects are read as inert records.
bool is_known_class(std::string_view module, std::string_view name);

}  // namespace colonnade::pickle
