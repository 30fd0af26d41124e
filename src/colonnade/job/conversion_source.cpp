// See conversion_source.h.
#include "colonnade/job/conversion_source.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/convert/megatron/reader.h"
#include "colonnade/convert/megatron/writer.h"
#include "colonnade/convert/slices.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/job/model_settings.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::job {
namespace {

using checkpoint::Box;
using checkpoint::CheckpointReader;
using checkpoint::Sizes;
using checkpoint::Slice;

Slice whole_slice(const std::string& name, const at::Tensor& data) {
  const Sizes shape = data.sizes().vec();
  return {.name = name, .global_shape = shape, .offset = Sizes(shape.size(), 0), .data = data};
}

CheckpointReader open_source(const ConversionOptions& o) {
  switch (o.from) {
    case CheckpointFormat::kHuggingFace:
      return convert::open_hugging_face(o.source);
    case CheckpointFormat::kNative:
      if (const auto found = checkpoint::find_checkpoint(o.source, o.step))
        return CheckpointReader::open_native(found->folder);
      break;
    case CheckpointFormat::kMegatron:
      if (const auto found = convert::megatron::find_folder(o.source, o.step))
        return convert::megatron::open(*found, {.cuts_vocabulary = o.to == CheckpointFormat::kHuggingFace});
  }
  throw DataError(fmt::format("--from: {} must hold a checkpoint of {}; got none; check the path",
                              o.source.string(),
                              o.from == CheckpointFormat::kNative ? "Colonnade" : "Megatron"));
}

/// The settings of the source: its model's, and those of its run.
config::Run conversion_settings(const CheckpointReader& source) {
  config::Run run;
  std::map<std::string, std::string> settings = model_settings(run, source);
  if (source.state().is_object() && source.state().contains("settings")) {
    for (const auto& [key, value] : source.state().at("settings").items())
      settings.try_emplace(key, value.get<std::string>());
  } else {
    (void)untie_stored_output(settings, source);
  }
  settings.erase("config");
  config::set(run, "model", settings.contains("model") ? settings["model"] : "gpt");
  for (const auto& [key, value] : settings) {
    if (key == "model") continue;
    try {
      config::set(run, key, value);
    } catch (const ConfigError&) {  // a setting of the other program's run that Colonnade lacks
      if (config::setting(key).defines_model) throw;
    }
  }
  run.parallel = {};
  config::derive(run);
  return run;
}

/// Boxes in which a parameter is converted: each expert, or the whole.
std::vector<Box> boxes_of(const layout::ParamSpec& spec) {
  const bool experts = spec.param_group == layout::ParamGroup::kExpert && spec.shape.size() > 1;
  std::vector<Box> boxes;
  for (std::int64_t e = 0; e < (experts ? spec.shape[0] : 1); ++e) {
    Box box{Sizes(spec.shape.size(), 0), spec.shape};
    if (experts) box.offset[0] = e, box.shape[0] = 1;
    boxes.push_back(std::move(box));
  }
  return boxes;
}

}  // namespace

ConversionSource::ConversionSource(const ConversionOptions& options)
    : options_(options),
      reader_(open_source(options)),
      run_(conversion_settings(reader_)),
      naming_(models::hf::naming_of(run_.model)) {}

std::vector<Item> ConversionSource::model_items() const {
  std::vector<Item> items;
  for (const std::string& name : model_names()) items.push_back(same(name, true));
  return items;
}

std::vector<Item> ConversionSource::optimizer_items() const {
  std::vector<Item> items;
  if (!carries_optimizer_) return items;
  for (const std::string& name : reader_.names())
    if (name.starts_with("optimizer.")) items.push_back(same(name, false));
  return items;
}

/// Names of the model's tensors in the source.
std::vector<std::string> ConversionSource::model_names() const {
  std::vector<std::string> names;
  for (const layout::ParamSpec& spec : layout::model_params(run_.model, {}))
    for (const auto& tensor : models::hf::tensors_of(spec, naming_)) names.push_back(tensor.name);
  for (const models::hf::Copy& copy : models::hf::copies_to_save(run_.model)) names.push_back(copy.name);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// Every tensor of the source is one of the model, and the other way round.
void ConversionSource::require_tensors(ConversionReport& report) {
  require_model_tensors(reader_, run_.model, /*logs_unread=*/true);
  const std::vector<std::string> wanted = model_names();
  std::vector<std::string> held;
  std::size_t states = 0;
  for (const std::string& name : reader_.names())
    if (name.starts_with("optimizer."))
      ++states;
    else
      held.push_back(name);
  report.source_tensors = held.size() + states;
  std::vector<std::string> missing, unused;
  std::ranges::set_difference(wanted, held, std::back_inserter(missing));
  std::ranges::set_difference(held, wanted, std::back_inserter(unused));
  std::erase_if(missing, [this](const std::string& name) { return is_copy(name); });
  if (!missing.empty())
    throw DataError(
        fmt::format("{}: every tensor of the model must be there; got {} missing: {}; copy it again",
                    reader_.folder().string(), missing.size(), checkpoint::first_names(missing)));
  report.used_tensors = held.size() - unused.size();
  if (!unused.empty())
    report.notes.push_back(fmt::format("{} tensors that no model uses were left out: {}", unused.size(),
                                       checkpoint::first_names(unused)));
  carries_optimizer_ = states > 0 && options_.with_optimizer && options_.to != CheckpointFormat::kHuggingFace;
  if (states > 0 && !carries_optimizer_)
    report.notes.push_back(fmt::format("{} tensors of the optimizer were left out", states));
  if (carries_optimizer_) report.used_tensors += states;
}

bool ConversionSource::is_copy(const std::string& name) const {
  return std::ranges::any_of(models::hf::copies_to_save(run_.model),
                             [&](const models::hf::Copy& copy) { return copy.name == name; });
}

at::ScalarType ConversionSource::target_dtype(at::ScalarType stored) const {
  return options_.dtype && at::isFloatingType(stored) ? *options_.dtype : stored;
}

/// A tensor of the source under its own name.
Item ConversionSource::same(const std::string& name, bool of_model) const {
  const std::string stored = reader_.has(name) ? name : original_of(name);
  const auto info = reader_.info(stored);
  const at::ScalarType dtype = of_model ? target_dtype(info.dtype) : info.dtype;
  return {.name = name, .dtype = dtype, .shape = info.shape, .read = [this, name, stored, info, dtype] {
            const at::Tensor data = at::empty(info.shape, at::TensorOptions().dtype(dtype));
            reader_.read_into({stored, info.shape, Sizes(info.shape.size(), 0), data});
            return std::vector<Slice>{whole_slice(name, data)};
          }};
}

std::string ConversionSource::original_of(const std::string& copy) const {
  for (const models::hf::Copy& each : models::hf::copies_to_save(run_.model))
    if (each.name == copy) return each.original;
  return copy;
}

/// A box of our parameter from the source's tensors of the model.
at::Tensor ConversionSource::read_parameter(const layout::ParamSpec& spec, const Box& box,
                                            at::ScalarType dtype) const {
  const at::Tensor data = at::empty(box.shape, at::TensorOptions().dtype(dtype));
  const Slice ours{.name = spec.name, .global_shape = spec.shape, .offset = box.offset, .data = data};
  for (const Slice& theirs : convert::box_slices(spec, ours, naming_)) reader_.read_into(theirs);
  return data;
}

std::vector<Item> ConversionSource::megatron_items() const {
  std::vector<Item> items;
  for (const layout::ParamSpec& spec : layout::model_params(run_.model, {})) {
    const at::ScalarType stored = reader_.info(models::hf::tensors_of(spec, naming_).front().name).dtype;
    for (const Box& box : boxes_of(spec)) {
      const at::ScalarType dtype = spec.trained ? target_dtype(stored) : stored;
      items.push_back({spec.name, dtype, box.shape, [this, spec, box, dtype] {
                         const at::Tensor data = read_parameter(spec, box, dtype);
                         return convert::megatron::megatron_slices(
                             spec, {spec.name, spec.shape, box.offset, data}, run_.model);
                       }});
      if (carries_optimizer_ && spec.trained) add_megatron_states(items, spec, box);
    }
  }
  return items;
}

/// Optimizer states of a box; masters that are the weights themselves are read from these.
void ConversionSource::add_megatron_states(std::vector<Item>& items, const layout::ParamSpec& spec,
                                           const Box& box) const {
  for (const char* state : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
    const std::string ours = fmt::format("optimizer.{}.{}", state, spec.name);
    const bool is_master = std::string_view(state) == "fp32_param";
    if (!is_master && !reader_.has(ours))
      throw DataError(
          fmt::format("{}: the optimizer must have the states of Adam for Megatron; got no {}; add "
                      "--no-optimizer",
                      reader_.folder().string(), ours));
    items.push_back({ours, at::kFloat, box.shape, [this, spec, box, state, ours] {
                       at::Tensor data;
                       if (reader_.has(ours)) {
                         data = at::empty(box.shape, at::kFloat);
                         reader_.read_into({ours, spec.shape, box.offset, data});
                       } else {
                         data = read_parameter(spec, box, at::kFloat);
                       }
                       return convert::megatron::megatron_slices(
                           spec, {spec.name, spec.shape, box.offset, data}, run_.model,
                           fmt::format("optimizer.state.{}.", convert::megatron::state_name(state)));
                     }});
  }
}

}  // namespace colonnade::job
