// Local parameters and optimizer state as boxes of global tensors: the models' names meet the
// checkpoint's files here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/slice.h"
#include "colonnade/models/gpt/hf_names.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::convert {

/// The parts of Hugging Face (or, without a family, our own) tensors that this rank holds of a
/// parameter; views of its memory. `replica_owner`: this rank saves for all data-parallel replicas.
std::vector<checkpoint::Slice> model_slices(const tensor::Parameter& parameter,
                                            std::optional<models::gpt::HfNaming> naming, bool replica_owner);
/// The same boxes as views of `value`, which has the parameter's local shape, in any type.
std::vector<checkpoint::Slice> model_slices(const tensor::Parameter& parameter, const at::Tensor& value,
                                            std::optional<models::gpt::HfNaming> naming, bool replica_owner);

/// A flat stretch [begin, begin + state.numel()) of a parameter's local part, as boxes of the global
/// tensor `name` (our shape). Filling is left out. Views of `state`.
std::vector<checkpoint::Slice> state_slices(const std::string& name, const tensor::Parameter& parameter,
                                            std::int64_t begin, const at::Tensor& state, bool replica_owner);

}  // namespace colonnade::convert
