// See folder_tensors.h.
#include "colonnade/job/folder_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/config/stacks.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/models/hf/spellings.h"

namespace colonnade::job {
namespace {

using Names = std::vector<std::string>;
using checkpoint::first_names;

/// The largest layer number in `names`, where the first numeric component of a name is its layer.
std::int64_t last_layer(const Names& names) {
  std::int64_t last = -1;
  for (const std::string& name : names) {
    const auto dot =
        std::ranges::adjacent_find(name, [](char a, char b) { return a == '.' && b >= '0' && b <= '9'; });
    std::int64_t number = -1;
    if (dot != name.end()) std::from_chars(&*dot + 1, name.data() + name.size(), number);
    last = std::max(last, number);
  }
  return last;
}

std::string unknown_fault(const models::hf::TensorDiff& left, const config::Model& model) {
  if (const std::string foreign = models::hf::unsupported_tensors(left.unknown); !foreign.empty())
    return foreign;
  std::int64_t layers = 0;  // of the longest stack, as names number layers within their stack
  for (const config::Stack& stack : config::stacks(model))
    layers = std::max(layers, stack.last - stack.first);
  std::string fix =
      "use the config.json that was saved with these weights, whose architecture has these tensors";
  if (const std::int64_t last = last_layer(left.unknown); last >= layers)
    fix = fmt::format(
        "config.json says {} layers and the weights have layer {}: use the config.json that was "
        "saved with them",
        layers, last);
  else if (std::ranges::all_of(left.unknown, [](const std::string& name) { return name.ends_with(".bias"); }))
    fix = "config.json describes a model without these biases: use the one that was saved with the weights";
  return fmt::format("{} others: {}; {}", left.unknown.size(), first_names(left.unknown), fix);
}

/// The keys of config.json that tie or untie the output layer and change nothing else: T5 scales its logits
/// unless tie_word_embeddings is false or scale_decoder_outputs says so.
std::string tie_keys(bool tied, const std::optional<std::string>& scaled) {
  const std::string tie = fmt::format("\"tie_word_embeddings\": {}", tied);
  return scaled ? fmt::format("{} and \"scale_decoder_outputs\": {}", tie, *scaled) : tie;
}

std::string missing_fault(const Names& missing, const config::Model& model) {
  const bool head = std::ranges::all_of(missing, [](const std::string& name) {
    return name.starts_with("lm_head.") || name.starts_with("cls.");
  });
  if (head && model.untie_embeddings_and_output_weights) {
    const bool scales = config::has_several_stacks(model);
    return fmt::format(
        "no {}: the folder holds the base model without its output layer, which config.json does not "
        "tie to the embeddings; save the model with its head, or write {} in config.json where the "
        "embeddings are the output layer",
        first_names(missing),
        tie_keys(true,
                 scales ? std::optional(fmt::format("{}", model.scale_decoder_outputs)) : std::nullopt));
  }
  if (head)
    return fmt::format(
        "no {}: the folder holds the base model without its head; save the model with its head",
        first_names(missing));
  return fmt::format("{} missing: {}; save or download the model again", missing.size(),
                     first_names(missing));
}

/// The first copy whose values differ from its original; null when there is none.
const models::hf::Copy* differing_copy(const checkpoint::CheckpointReader& source,
                                       const std::vector<models::hf::Copy>& copies) {
  const auto found = std::ranges::find_if(copies, [&](const models::hf::Copy& copy) {
    return source.has(copy.original) && !convert::equal_tensors(source, copy.name, copy.original);
  });
  return found == copies.end() ? nullptr : &*found;
}

/// Logs the files and tensors of the folder that are not read.
void log_unread(const checkpoint::CheckpointReader& source, const models::hf::TensorDiff& left) {
  std::vector<std::string> parts;
  for (const auto& [what, names] : left.unused)
    parts.push_back(fmt::format("{} {} ({})", names.size(), what, first_names(names)));
  if (const Names& files = source.unlisted_files(); !files.empty())
    parts.push_back(fmt::format("{} files missing in model.safetensors.index.json ({})", files.size(),
                                first_names(files)));
  if (!parts.empty()) log::info("{}: not read: {}", source.folder().string(), fmt::join(parts, ", "));
}

}  // namespace

std::string untie_stored_output(std::map<std::string, std::string>& settings,
                                const checkpoint::CheckpointReader& source) {
  const std::string type = models::hf::model_type_of(source.hf_config());
  const auto tied = models::hf::tied_tables(type);
  const auto untied = settings.find("untie_embeddings_and_output_weights");
  if (!tied || untied == settings.end() || untied->second != "false" || !source.has(tied->embedding) ||
      !source.has(tied->output) || convert::equal_tensors(source, tied->embedding, tied->output))
    return "";
  untied->second = "true";
  const auto scaled = settings.find("scale_decoder_outputs");
  return fmt::format(
      "{}: {} differs from {}, to which config.json ties it; it is left untied, as in Transformers (write {} in "
      "config.json)",
      source.folder().string(), tied->output, tied->embedding,
      tie_keys(false, scaled == settings.end() ? std::nullopt : std::optional(scaled->second)));
}

void require_model_tensors(const checkpoint::CheckpointReader& source, const config::Model& model,
                           bool logs_unread) {
  if (source.state().is_object()) return;
  const auto left = models::hf::tensor_diff(model, source.names());
  const std::string folder = source.folder().string();
  if (!left.unknown.empty())
    throw DataError(
        fmt::format("{}: every tensor must be one of the model that config.json describes; got {}", folder,
                    unknown_fault(left, model)));
  if (!left.missing.empty())
    throw DataError(
        fmt::format("{}: every tensor of the model that config.json describes must be there; got {}", folder,
                    missing_fault(left.missing, model)));
  if (const auto* copy = differing_copy(source, left.copies)) {
    if (!copy->is_read)
      throw DataError(
          fmt::format("{}: {} must hold the values of {}, whose copy it is; got other values, which no model "
                      "here supports; train with one embedding table",
                      folder, copy->name, copy->original));
    if (logs_unread)
      log::info("{}: {} differs from {}; the decoder's bias is read, as in Transformers", folder,
                copy->original, copy->name);
  }
  if (logs_unread) log_unread(source, left);
}

}  // namespace colonnade::job
