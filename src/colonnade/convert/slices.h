// Local parameters and optimizer state as boxes of global tensors: the models' names meet the
// checkpoint's files here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/slice.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::convert {

/// The parts of Hugging Face (or, without a family, our own) tensors that a flat stretch
/// [begin, begin + values.numel()) of a parameter's local part holds; views of `values`, which may have any
/// type. `owner`: this rank saves them.
std::vector<checkpoint::Slice> model_slices(const tensor::Parameter& parameter, std::int64_t begin,
                                            const at::Tensor& values,
                                            std::optional<models::hf::Naming> naming, bool owner);
/// Of the whole local part, in its memory.
std::vector<checkpoint::Slice> model_slices(const tensor::Parameter& parameter,
                                            std::optional<models::hf::Naming> naming, bool owner);

/// The same of a stretch of optimizer state, as boxes of the global tensor `name` (our shape). Filling is
/// left out. Views of `state`.
std::vector<checkpoint::Slice> state_slices(const std::string& name, const tensor::Parameter& parameter,
                                            std::int64_t begin, const at::Tensor& state, bool owner);

}  // namespace colonnade::convert
