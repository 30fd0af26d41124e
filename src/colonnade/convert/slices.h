// Maps local parameters and optimizer state to slices of the global tensors in checkpoints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/slice.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::convert {

/// Slices of Hugging Face (without `naming`: our own) tensors that a flat range [begin, begin +
/// values.numel()) of a parameter's local part holds. Views of `values`, of any dtype. `owner`: this rank
/// saves them.
std::vector<checkpoint::Slice> model_slices(const tensor::Parameter& parameter, std::int64_t begin,
                                            const at::Tensor& values,
                                            std::optional<models::hf::Naming> naming, bool owner);
/// Slices of the full local part; views of the parameter's value.
std::vector<checkpoint::Slice> model_slices(const tensor::Parameter& parameter,
                                            std::optional<models::hf::Naming> naming, bool owner);

/// Slices of Hugging Face (without `naming`: our own) tensors that hold `box`, a box of the global tensor of
/// `spec`. Views of its data.
std::vector<checkpoint::Slice> box_slices(const layout::ParamSpec& spec, const checkpoint::Slice& box,
                                          std::optional<models::hf::Naming> naming);

/// Slices of the global tensor `name` (of our shape) for a flat range of optimizer state, without padding.
/// Views of `state`.
std::vector<checkpoint::Slice> state_slices(const std::string& name, const tensor::Parameter& parameter,
                                            std::int64_t begin, const at::Tensor& state, bool owner);

}  // namespace colonnade::convert
