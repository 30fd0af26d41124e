// See torch_distributed.h. Source of torchtitan's order:
// torchtitan/models/llama3/model/state_dict_adapter.py.
#include "colonnade/convert/torch_distributed.h"

#include <fmt/format.h>

#include <charconv>
#include <regex>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/distributed.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/hugging_face.h"

namespace colonnade::convert {
namespace {

namespace fs = std::filesystem;
using checkpoint::ComposedTensor;
using checkpoint::Part;
using Tensors = std::map<std::string, ComposedTensor>;

constexpr const char* kEmbedding = "model.embed_tokens.weight";

bool is_tensor_folder(const fs::path& folder) {
  std::error_code unreadable;
  return checkpoint::is_distributed_folder(folder) && !fs::exists(folder / "metadata.json", unreadable);
}

/// The folder itself, or its step-N with the largest N.
std::optional<fs::path> find_tensor_folder(const fs::path& path) {
  if (is_tensor_folder(path)) return path;
  std::optional<fs::path> last;
  std::int64_t newest = -1;
  for (const std::string& name : checkpoint::names_in(path)) {
    std::int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    const auto [end, fault] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (fault != std::errc() || end != name.data() + name.size() || step <= newest) continue;
    if (!is_tensor_folder(path / name)) continue;
    newest = step;
    last = path / name;
  }
  return last;
}

/// Tensors of Transformers' names without the prefix that precedes them all; nothing where there are none.
std::optional<Tensors> of_transformers(const Tensors& stored) {
  for (const std::string prefix : {"", "model.", "module.", "module.model.", "model.module."}) {
    if (!stored.contains(prefix + kEmbedding)) continue;
    Tensors named;
    for (const auto& [name, tensor] : stored) {
      const std::string rest = name.starts_with(prefix) ? name.substr(prefix.size()) : "";
      if (rest.starts_with("model.") || rest.starts_with("lm_head.")) named[rest] = tensor;
    }
    return named;
  }
  return std::nullopt;
}

/// Transformers' name of a tensor of torchtitan; "" for others.
std::string name_of_titan(const std::string& name) {
  static const std::map<std::string, std::string> kOutside = {{"tok_embeddings.weight", kEmbedding},
                                                              {"norm.weight", "model.norm.weight"},
                                                              {"output.weight", "lm_head.weight"},
                                                              {"lm_head.weight", "lm_head.weight"}};
  static const std::map<std::string, std::string> kInside = {{"attention.wq", "self_attn.q_proj"},
                                                             {"attention.wk", "self_attn.k_proj"},
                                                             {"attention.wv", "self_attn.v_proj"},
                                                             {"attention.qkv_linear.wq", "self_attn.q_proj"},
                                                             {"attention.qkv_linear.wk", "self_attn.k_proj"},
                                                             {"attention.qkv_linear.wv", "self_attn.v_proj"},
                                                             {"attention.wo", "self_attn.o_proj"},
                                                             {"feed_forward.w1", "mlp.gate_proj"},
                                                             {"feed_forward.w2", "mlp.down_proj"},
                                                             {"feed_forward.w3", "mlp.up_proj"},
                                                             {"attention_norm", "input_layernorm"},
                                                             {"ffn_norm", "post_attention_layernorm"},
                                                             {"attention.q_norm", "self_attn.q_norm"},
                                                             {"attention.k_norm", "self_attn.k_norm"}};
  if (const auto found = kOutside.find(name); found != kOutside.end()) return found->second;
  static const std::regex kLayer(R"(layers\.(\d{1,6})\.(.*)\.weight)");
  std::smatch m;
  if (!std::regex_match(name, m, kLayer)) return "";
  const auto found = kInside.find(m[2]);
  return found == kInside.end() ? "" : fmt::format("model.layers.{}.{}.weight", m[1].str(), found->second);
}

/// Rows of a head in pairs (2 i, 2 i + 1) as halves (i, i + d / 2), as Transformers rotates them.
ComposedTensor in_halves(const ComposedTensor& pairs, std::int64_t head) {
  ComposedTensor halves{.dtype = pairs.dtype, .shape = pairs.shape, .parts = {}, .compute = {}};
  for (const Part& part : pairs.parts) {
    const std::int64_t begin = part.box.offset[0], end = begin + part.box.shape[0];
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t first = row / head * head, last = std::min(first + head, end);
      for (const std::int64_t odd : {0, 1}) {
        const std::int64_t from = row + (row % 2 == odd ? 0 : 1);
        if (from >= last) continue;
        at::Tensor data = part.data.slice(0, from - begin, last - begin, 2);
        checkpoint::Box box = part.box;
        box.offset[0] = first + (from - first) / 2 + odd * head / 2;
        box.shape[0] = data.size(0);
        halves.parts.push_back({std::move(box), std::move(data)});
      }
      row = last;
    }
  }
  return halves;
}

/// Head size of a config.json; 0 where it does not say.
std::int64_t head_size(const nlohmann::json& config) {
  const auto integer = [&](const char* key) -> std::int64_t {
    const auto found = config.find(key);
    return found != config.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  const std::int64_t heads = integer("num_attention_heads");
  if (const std::int64_t given = integer("head_dim"); given > 0) return given;
  return heads > 0 ? integer("hidden_size") / heads : 0;
}

std::optional<Tensors> of_titan(const Tensors& stored, std::int64_t head, const std::string& folder) {
  if (!stored.contains("tok_embeddings.weight")) return std::nullopt;
  Tensors named;
  for (const auto& [name, tensor] : stored) {
    const std::string theirs = name_of_titan(name);
    if (theirs.empty()) continue;
    const bool rotated =
        theirs.find(".q_proj.") != std::string::npos || theirs.find(".k_proj.") != std::string::npos;
    if (rotated && (head < 2 || tensor.shape.empty() || tensor.shape[0] % head != 0))
      throw DataError(
          fmt::format("{}: '{}' must have whole heads of {} rows; got {}; check --num-attention-heads and "
                      "--kv-channels",
                      folder, name, head, tensor.shape.empty() ? 0 : tensor.shape[0]));
    named[theirs] = rotated ? in_halves(tensor, head) : tensor;
  }
  return named;
}

}  // namespace

std::optional<checkpoint::CheckpointReader> open_torch_distributed(const fs::path& typed,
                                                                   const config::Model* model) {
  const auto folder = find_tensor_folder(checkpoint::strip_trailing_slash(typed));
  if (!folder) return std::nullopt;
  checkpoint::ComposedSource source{.folder = *folder, .tensors = {}, .state = nullptr, .hf_config = nullptr};
  std::error_code absent;
  const bool described = fs::exists(*folder / "config.json", absent);
  if (described) source.hf_config = checkpoint::read_json(*folder / "config.json");
  if (!described)  // the settings of the run describe the model
    source.state = {
        {"iteration", 0},
        {"consumed_samples", 0},
        {"skipped", 0},
        {"optimizer",
         {{"kind", "adam"}, {"steps", 0}, {"dropped", "the format's optimizer states are not read"}}},
        {"settings", nlohmann::json::object()},
        {"model", {{"of_settings", true}}}};
  if (!described && model == nullptr) return checkpoint::CheckpointReader::of(std::move(source));
  const checkpoint::DistributedFolder stored = checkpoint::open_distributed(*folder);
  const std::int64_t head = described ? head_size(source.hf_config) : model->kv_channels;
  auto named = of_transformers(stored.tensors);
  if (!named) named = of_titan(stored.tensors, head, folder->string());
  if (!named)
    throw DataError(
        fmt::format("{}: a folder of torch.distributed.checkpoint must have the names of Transformers or "
                    "torchtitan; got {}; save the model's state_dict of Transformers",
                    folder->string(), stored.tensors.empty() ? "no tensors" : stored.tensors.begin()->first));
  if (const std::size_t left = stored.tensors.size() - named->size(); left > 0)
    log::info("{}: {} tensors besides the model's (optimizer states, ...) are not read", folder->string(),
              left);
  source.tensors = std::move(*named);
  return checkpoint::CheckpointReader::of(std::move(source));
}

}  // namespace colonnade::convert
