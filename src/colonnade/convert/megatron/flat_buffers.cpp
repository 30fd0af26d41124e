// See flat_buffers.h.
#include "colonnade/convert/megatron/flat_buffers.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::convert::megatron {

using checkpoint::Box;
using checkpoint::ComposedTensor;
using checkpoint::Part;
using checkpoint::Sizes;

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t numel(const Sizes& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Parameters of a layer in the order of named_parameters(): a module's own before those of its parts.
std::vector<std::string> layer_params(ModuleOrder order) {
  const bool local = order == ModuleOrder::kLocal;
  std::vector<std::string> names;
  const auto add = [&names](const std::string& module, std::initializer_list<const char*> ends) {
    for (const char* end : ends) names.push_back(module + end);
  };
  add("input_layernorm.", {"weight", "bias"});
  // Megatron's own modules keep the norm of a fused layer apart, before the layer's module.
  if (local) add("self_attention.linear_qkv.", {"layer_norm_weight", "layer_norm_bias"});
  add("self_attention.core_attention.", {"softmax_offset"});
  add("self_attention.linear_proj.", {"weight", "bias"});
  if (!local) add("self_attention.linear_qkv.", {"layer_norm_weight", "layer_norm_bias"});
  add("self_attention.linear_qkv.", {"weight", "bias"});
  add("self_attention.linear_q_proj.", {"weight", "bias"});
  add("self_attention.linear_q_down_proj.", {"weight", "bias"});
  if (!local) add("self_attention.linear_q_up_proj.", {"layer_norm_weight"});
  add("self_attention.linear_q_up_proj.", {"weight", "bias"});
  add("self_attention.linear_kv_down_proj.", {"weight", "bias"});
  if (!local) add("self_attention.linear_kv_up_proj.", {"layer_norm_weight"});
  add("self_attention.linear_kv_up_proj.", {"weight", "bias"});
  if (local) add("self_attention.linear_q_up_proj.", {"layer_norm_weight"});
  if (local) add("self_attention.linear_kv_up_proj.", {"layer_norm_weight"});
  add("self_attention.q_layernorm.", {"weight", "bias"});
  add("self_attention.k_layernorm.", {"weight", "bias"});
  add("self_attention.kv_layernorm.", {"weight", "bias"});
  add("pre_mlp_layernorm.", {"weight", "bias"});
  add("mlp.linear_fc1.", {"layer_norm_weight", "layer_norm_bias", "weight", "bias"});
  add("mlp.linear_fc2.", {"weight", "bias"});
  add("mlp.router.", {"weight", "bias"});
  add("mlp.fc1_latent_proj.", {"weight"});
  add("mlp.fc2_latent_proj.", {"weight"});
  add("mlp.experts.experts.linear_fc1.", {"weight"});
  add("mlp.experts.experts.linear_fc2.", {"weight"});
  add("mlp.shared_experts.", {"gate_weight"});
  add("mlp.shared_experts.linear_fc1.", {"weight"});
  add("mlp.shared_experts.linear_fc2.", {"weight"});
  return names;
}

struct Layers {
  std::int64_t first = 0, count = 0;
};

/// Layers of a chunk: virtual stage vp of pipeline rank pp holds block vp * PP + pp.
Layers layers_of(const nlohmann::json& args, const RankChunk& chunk) {
  const std::int64_t layers = integer_arg(args, "num_layers", 0);
  const std::int64_t pp = integer_arg(args, "pipeline_model_parallel_size", 1);
  const std::int64_t vp =
      std::max<std::int64_t>(integer_arg(args, "virtual_pipeline_model_parallel_size", 1), 1);
  for (const char* name : {"pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers",
                           "decoder_last_pipeline_num_layers"})
    if (args.contains(name) && !args[name].is_null())
      throw DataError(
          fmt::format("optimizer states in flat buffers must be of equal pipeline stages; got {} in the "
                      "args; save them as fully_reshardable with Megatron, or add --no-load-optim",
                      name));
  for (const char* name : {"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"})
    if (flag_arg(args, name, false))
      throw DataError(
          fmt::format("optimizer states in flat buffers must be of equal pipeline stages; got {} in the "
                      "args; save them as fully_reshardable with Megatron, or add --no-load-optim",
                      name));
  if (pp < 1 || layers % (pp * vp) != 0)
    throw DataError(
        fmt::format("optimizer states in flat buffers must be of equal pipeline stages; got {} layers on "
                    "{} x {} stages; add --no-load-optim",
                    layers, pp, vp));
  const std::int64_t count = layers / (pp * vp);
  return {(chunk.vp * pp + chunk.pp) * count, count};
}

bool is_experts(const std::string& name) { return name.find(".mlp.experts.experts.") != std::string::npos; }

/// Collects the parameters of a chunk that the model has.
class ParamList {
 public:
  ParamList(const Source& source, const RankChunk& chunk, bool experts)
      : source_(source),
        chunk_(chunk),
        experts_(experts),
        gated_(flag_arg(source.args, "swiglu", false) || flag_arg(source.args, "geglu", false)),
        tp_(integer_arg(source.args, "tensor_model_parallel_size", 1)),
        ep_(integer_arg(source.args, "expert_model_parallel_size", 1)),
        etp_(integer_arg(source.args, "expert_tensor_parallel_size", tp_)) {}

  void add(const std::string& name) {
    const auto found = source_.model.find(name);
    if (found == source_.model.end() || is_experts(name) != experts_) return;
    const Sizes& shape = found->second.shape;
    Share share{.rank = chunk_.tp,
                .size = experts_ ? etp_ : tp_,
                .split = models::megatron::split_of(name, gated_),
                .row_dim = 0};
    if (!experts_) {
      params_.push_back({name, -1, local_shape(name, shape, share), share});
      return;
    }
    const std::int64_t local = shape.at(0) / ep_;
    const Sizes one(shape.begin() + 1, shape.end());
    for (std::int64_t e = 0; e < local; ++e)
      params_.push_back({name, chunk_.ep * local + e, local_shape(name, one, share), share});
  }

  /// The last stage's copy of tied embeddings.
  void add_tied_copy() {
    const std::string name = "embedding.word_embeddings.weight";
    if (experts_ || !source_.model.contains(name)) return;
    const Share share{chunk_.tp, tp_, models::megatron::Split::kRows, 0};
    params_.push_back({"", -1, local_shape(name, source_.model.at(name).shape, share), share});
  }

  [[nodiscard]] std::vector<FlatParam> take() { return std::move(params_); }

 private:
  const Source& source_;
  RankChunk chunk_;
  bool experts_, gated_;
  std::int64_t tp_, ep_, etp_;
  std::vector<FlatParam> params_;
};

/// Calls `use` with bucket, first element and parameter, from the end of the list, as in the buffer. Returns
/// whether the parameters fill the buckets exactly.
bool for_each_place(const std::vector<FlatParam>& params, const std::vector<std::int64_t>& unpadded,
                    const std::function<void(std::size_t, std::int64_t, const FlatParam&)>& use) {
  std::size_t bucket = 0;
  std::int64_t at = 0;
  for (auto param = params.rbegin(); param != params.rend(); ++param) {
    at = (at + kAlignment - 1) / kAlignment * kAlignment;
    const std::int64_t end = at + numel(param->shape);
    if (bucket >= unpadded.size() || end > unpadded[bucket]) return false;
    use(bucket, at, *param);
    at = end;
    if (at == unpadded[bucket]) {
      ++bucket;
      at = 0;
    }
  }
  return bucket == unpadded.size();
}

/// Adds the values of one parameter, which are `count` elements from `begin` on of a bucket.
void add_param(const ComposedTensor& bucket, std::int64_t begin, const FlatParam& param,
               ComposedTensor& whole) {
  const std::int64_t end = begin + numel(param.shape);
  for (const Part& stored : bucket.parts) {
    const std::int64_t first = std::max(begin, stored.box.offset[0]);
    const std::int64_t last = std::min(end, stored.box.offset[0] + stored.box.shape[0]);
    if (first >= last) continue;
    std::int64_t done = first - stored.box.offset[0];
    for (const Box& box : checkpoint::boxes_of_range(param.shape, first - begin, last - begin)) {
      Part part{box, stored.data.narrow(0, done, box.numel()).view(box.shape)};
      done += box.numel();
      if (param.expert < 0) {
        add_share(whole, param.shape, part, param.share);
        continue;
      }
      ComposedTensor one{.dtype = whole.dtype, .shape = {}, .parts = {}, .compute = {}};
      add_share(one, param.shape, part, param.share);
      for (Part& of_expert : one.parts) {
        of_expert.box.offset.insert(of_expert.box.offset.begin(), param.expert);
        of_expert.box.shape.insert(of_expert.box.shape.begin(), 1);
        whole.parts.push_back({std::move(of_expert.box), of_expert.data.unsqueeze(0)});
      }
    }
  }
}

}  // namespace

std::vector<FlatParam> params_of(const Source& source, const RankChunk& chunk, bool experts,
                                 ModuleOrder order) {
  const std::int64_t pp = integer_arg(source.args, "pipeline_model_parallel_size", 1);
  const std::int64_t vp =
      std::max<std::int64_t>(integer_arg(source.args, "virtual_pipeline_model_parallel_size", 1), 1);
  const bool is_first = chunk.pp == 0 && chunk.vp == 0, is_last = chunk.pp == pp - 1 && chunk.vp == vp - 1;
  const Layers layers = layers_of(source.args, chunk);
  ParamList list(source, chunk, experts);
  if (is_first)
    for (const char* name : {"embedding.word_embeddings.weight", "embedding.position_embeddings.weight",
                             "embedding.tokentype_embeddings.weight"})
      list.add(name);
  const std::vector<std::string> ends = layer_params(order);
  const auto add_layer = [&](const std::string& prefix) {
    for (const std::string& end : ends) list.add(prefix + end);
  };
  for (std::int64_t i = layers.first; i < layers.first + layers.count; ++i)
    add_layer(fmt::format("decoder.layers.{}.", i));
  if (!is_last) return list.take();
  list.add("decoder.final_layernorm.weight");
  list.add("decoder.final_layernorm.bias");
  for (std::int64_t i = 0; i < integer_arg(source.args, "mtp_num_layers", 0); ++i) {
    const std::string prefix = fmt::format("mtp.layers.{}.", i);
    for (const char* end : {"enorm.weight", "hnorm.weight", "eh_proj.weight"}) list.add(prefix + end);
    add_layer(prefix + "transformer_layer.");
    list.add(prefix + "final_layernorm.weight");
  }
  list.add("output_layer.weight");
  if (!source.model.contains("output_layer.weight") && !is_first) list.add_tied_copy();
  return list.take();
}

bool fits(const std::vector<FlatParam>& params, const std::vector<std::int64_t>& unpadded) {
  return for_each_place(params, unpadded, [](std::size_t, std::int64_t, const FlatParam&) {});
}

void unflatten(const FlatBuffer& buffer, const std::vector<FlatParam>& params, const Tensors& model,
               Tensors& into) {
  for_each_place(params, buffer.unpadded,
                 [&](std::size_t bucket, std::int64_t begin, const FlatParam& param) {
                   if (param.name.empty()) return;
                   const ComposedTensor& stored = buffer.buckets[bucket];
                   ComposedTensor& whole = into[param.name];
                   whole.dtype = stored.dtype;
                   whole.shape = model.at(param.name).shape;
                   add_param(stored, begin, param, whole);
                 });
}

}  // namespace colonnade::convert::megatron
