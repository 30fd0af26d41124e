// See spellings.h.
#include "colonnade/models/hf/spellings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/models/hf/family.h"

namespace colonnade::models::hf {
namespace {

/// Name components of modules that wrap the model: torch.compile, FSDP, DDP, PEFT, multimodal models, or the
/// base model's own prefix.
constexpr std::string_view kWrappers[] = {"module",
                                          "_orig_mod",
                                          "_fsdp_wrapped_module",
                                          "_checkpoint_wrapped_module",
                                          "_forward_module",
                                          "base_model",
                                          "model",
                                          "language_model",
                                          "text_model",
                                          "pretrained_model",
                                          "transformer",
                                          "bert"};
/// Wrappers of any submodule, which may occur inside a name.
constexpr std::string_view kInside[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."};

std::string_view first_part(std::string_view name) { return name.substr(0, name.find('.')); }

bool holds(const auto& parts, std::string_view part) {
  return std::ranges::find(parts, part) != std::ranges::end(parts);
}

/// `stored` normalized to names.h; unchanged if not recognized.
std::string respelled(const Spelling& spelling, const std::string& stored) {
  std::string name = stored;
  for (const std::string_view wrapper : kInside)
    for (auto at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper))
      name.erase(at, wrapper.size());
  std::string_view rest = name;
  const auto known = [&] {
    return holds(spelling.roots, first_part(rest)) || holds(spelling.heads, first_part(rest));
  };
  while (!known() && holds(kWrappers, first_part(rest)) && rest.find('.') != std::string_view::npos)
    rest.remove_prefix(rest.find('.') + 1);
  if (!known()) return stored;
  const bool base = holds(spelling.roots, first_part(rest));
  std::string result = fmt::format("{}{}", base ? spelling.prefix : "", rest);
  for (const Respelling& other : spelling.respellings)
    if (const auto at = result.find(other.from); at != std::string::npos)
      result.replace(at, other.from.size(), other.to);
  return result;
}

/// Per-expert parts of a fused expert tensor, by name; empty for other tensors.
std::map<std::string, SpelledTensor> parts_of_fused(const Spelling& spelling, const std::string& name,
                                                    const std::string& stored,
                                                    const std::vector<std::int64_t>& shape) {
  std::map<std::string, SpelledTensor> parts;
  for (const FusedExperts& fused : spelling.fused) {
    const auto count = static_cast<std::int64_t>(fused.parts.size());
    if (!name.ends_with(fused.stored) || shape.size() != 3 || shape[1] % count != 0) continue;
    if (shape[0] > kMostExperts || shape[1] == 0) continue;  // corrupt header
    const std::string front = name.substr(0, name.size() - fused.stored.size());
    const std::int64_t rows = shape[1] / count;
    for (std::int64_t expert = 0; expert < shape[0]; ++expert)
      for (std::int64_t part = 0; part < count; ++part)
        parts[front + fmt::format(fmt::runtime(fused.parts[static_cast<std::size_t>(part)]), expert)] = {
            stored, expert, part * rows, rows};
  }
  return parts;
}

/// Name parts of tensors from unsupported checkpoints.
struct ForeignTensor {
  std::string_view part;
  std::string_view kind;
  std::string_view fix;
};
constexpr std::string_view kMerge =
    "merge the adapter into the model with PEFT's merge_and_unload() and save that";
constexpr std::string_view kDequantize =
    "use the model's bf16 folder, or load it with Transformers, call dequantize() and save_pretrained()";
constexpr std::string_view kOtherParts = "save the language model alone, with a config.json of its own";
constexpr ForeignTensor kForeignTensors[] = {
    {".lora_", "of a LoRA adapter", kMerge},
    {".base_layer.", "of a model with an adapter", kMerge},
    {".modules_to_save.", "of a model with an adapter", kMerge},
    {".ia3_", "of an IA3 adapter", kMerge},
    {".weight_scale_inv", "quantized to FP8 in blocks", kDequantize},
    {".weight_packed", "quantized by compressed-tensors", kDequantize},
    {".weight_scale", "quantized to 8 bits", kDequantize},
    {".input_scale", "quantized to 8 bits", kDequantize},
    {".output_scale", "quantized to 8 bits", kDequantize},
    {".k_scale", "quantized to 8 bits", kDequantize},
    {".v_scale", "quantized to 8 bits", kDequantize},
    {".qweight", "quantized by GPTQ or AWQ", kDequantize},
    {".qzeros", "quantized by GPTQ or AWQ", kDequantize},
    {".g_idx", "quantized by GPTQ", kDequantize},
    {".scales", "quantized by GPTQ or AWQ", kDequantize},
    {".absmax", "quantized to 4 bits by bitsandbytes", kDequantize},
    {".quant_state", "quantized to 4 bits by bitsandbytes", kDequantize},
    {".quant_map", "quantized to 4 bits by bitsandbytes", kDequantize},
    {".SCB", "quantized to 8 bits by bitsandbytes", kDequantize},
    {".weight_format", "quantized to 8 bits by bitsandbytes", kDequantize},
    {"_proj_blocks", "quantized to MXFP4", kDequantize},
    {"_proj_scales", "quantized to MXFP4", kDequantize},
    {"vision_tower.", "of a model that reads images", kOtherParts},
    {"vision_model.", "of a model that reads images", kOtherParts},
    {"visual.", "of a model that reads images", kOtherParts},
    {"multi_modal_projector.", "of a model that reads images", kOtherParts},
    {"audio_tower.", "of a model that reads sound", kOtherParts},
};

}  // namespace

std::map<std::string, SpelledTensor> spelled_tensors(const std::string& model_type,
                                                     const StoredShapes& stored, const std::string& source) {
  std::map<std::string, SpelledTensor> tensors;
  const Family* family = family_of_type(model_type);
  for (const auto& [name, shape] : stored) {
    std::map<std::string, SpelledTensor> found;
    if (family == nullptr) {
      found[name] = {.stored = name};
    } else {
      const std::string respelling = respelled(family->spelling, name);
      found = parts_of_fused(family->spelling, respelling, name, shape);
      if (found.empty()) found[respelling] = {.stored = name};
    }
    for (auto& [spelled, tensor] : found) {
      const auto [before, is_new] = tensors.emplace(spelled, std::move(tensor));
      if (!is_new)
        throw DataError(
            fmt::format("{}: every tensor must be stored once; got {} as '{}' and as '{}'; remove one "
                        "of them, or save the model again",
                        source, spelled, before->second.stored, name));
    }
  }
  return tensors;
}

std::string unsupported_tensors(const std::vector<std::string>& unknown) {
  for (const ForeignTensor& foreign : kForeignTensors)
    for (const std::string& name : unknown)
      if (("." + name).find(foreign.part) != std::string::npos)
        return fmt::format("tensors {}, such as {}; {}", foreign.kind, name, foreign.fix);
  return "";
}

std::optional<TiedTables> tied_tables(const std::string& model_type) {
  const Family* family = family_of_type(model_type);
  return family == nullptr ? std::nullopt : std::optional(family->tied);
}

}  // namespace colonnade::models::hf
