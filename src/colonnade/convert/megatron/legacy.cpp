// See legacy.h.
#include "colonnade/convert/megatron/legacy.h"

#include <fmt/format.h>

#include <numeric>
#include <regex>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/torch_file.h"
#include "colonnade/convert/megatron/flat_buffers.h"
#include "colonnade/convert/megatron/masters.h"
#include "colonnade/convert/megatron/numbered.h"
#include "colonnade/convert/megatron/values.h"

namespace colonnade::convert::megatron {

namespace fs = std::filesystem;
using checkpoint::ComposedTensor;
using checkpoint::Sizes;
using checkpoint::TorchFile;
using pickle::Kind;
using pickle::Value;

namespace {

/// Position of a rank's folder.
struct Position {
  std::int64_t tp = 0, pp = 0, ep = 0;
  auto operator<=>(const Position&) const = default;
};

struct RankFiles {
  TorchFile model;
  std::optional<TorchFile> optimizer;
};

/// The value of a dict for an integer key; null when there is none.
const Value* find_integer(const Value& dict, std::int64_t key) {
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (dict.items[i]->is(Kind::kInt) && dict.items[i]->integer == key) return dict.items[i + 1];
  return nullptr;
}

/// A rank's name of an expert's tensor in the form of numbered.h; other names as they are.
std::string with_global_expert(const std::string& name, std::int64_t first_expert) {
  static const std::regex kGrouped(R"((.*\.mlp\.experts)\.(linear_fc[12])\.(weight|bias)(\d{1,6}))");
  static const std::regex kSingle(
      R"((.*\.mlp\.experts)\.local_experts\.(\d{1,6})\.(linear_fc[12])\.(weight|bias))");
  std::smatch m;
  if (std::regex_match(name, m, kGrouped))
    return fmt::format("{}.experts.{}.{}.{}", m[1].str(), std::stol(m[4]) + first_expert, m[2].str(),
                       m[3].str());
  if (std::regex_match(name, m, kSingle))
    return fmt::format("{}.experts.{}.{}.{}", m[1].str(), std::stol(m[2]) + first_expert, m[3].str(),
                       m[4].str());
  return name;
}

/// A rank's name with the model's number of its layer.
std::string with_global_layer(const std::string& name, std::int64_t first_layer) {
  static const std::regex kLayer(R"((encoder|decoder)\.layers\.(\d{1,6})\.(.*))");
  std::smatch m;
  if (!std::regex_match(name, m, kLayer)) return name;
  return fmt::format("{}.layers.{}.{}", m[1].str(), std::stol(m[2]) + first_layer, m[3].str());
}

class LegacyReader {
 public:
  explicit LegacyReader(const fs::path& folder) { source_.folder = folder; }

  Source read() {
    open_ranks();
    for (const auto& [position, files] : ranks_)
      for (std::int64_t vp = 0; vp < virtual_stages_; ++vp) add_chunk(position, files.model, vp);
    read_optimizer();
    return std::move(source_);
  }

 private:
  [[noreturn]] void fail(std::string_view text) const {
    throw DataError(fmt::format("{}: {}", source_.folder.string(), text));
  }

  void open_ranks() {
    static const std::regex kRank(R"(mp_rank_(\d{2})(?:_(\d{3}))?(?:_(\d{3}))?)");
    std::map<std::string, std::vector<std::int64_t>> folders;
    for (const auto& entry : sorted_entries(source_.folder)) {
      std::smatch m;
      const std::string name = entry.path().filename().string();
      if (!std::regex_match(name, m, kRank)) continue;
      for (std::size_t i = 1; i < m.size(); ++i)
        if (m[i].matched) folders[name].push_back(std::stol(m[i]));
    }
    if (folders.empty())
      fail("a legacy checkpoint of Megatron must have folders mp_rank_*; got none; check the path");
    read_common(TorchFile::open(source_.folder / folders.begin()->first / "model_optim_rng.pt"));
    const std::int64_t tp = integer_arg(source_.args, "tensor_model_parallel_size", 1);
    const std::int64_t pp = integer_arg(source_.args, "pipeline_model_parallel_size", 1);
    const std::int64_t ep = integer_arg(source_.args, "expert_model_parallel_size", 1);
    for (const auto& [name, numbers] : folders) {  // the names alone do not tell pipeline from expert ranks
      const Position at{numbers[0], pp > 1 && numbers.size() > 1 ? numbers[1] : 0,
                        ep > 1 ? numbers.back() : 0};
      const fs::path states = source_.folder / name / "distrib_optim.pt";
      std::error_code unreadable;
      ranks_.emplace(at, RankFiles{TorchFile::open(source_.folder / name / "model_optim_rng.pt"),
                                   fs::exists(states, unreadable) ? std::optional(TorchFile::open(states))
                                                                  : std::nullopt});
    }
    for (Position at; at.tp < tp; ++at.tp)
      for (at.pp = 0; at.pp < pp; ++at.pp)
        for (at.ep = 0; at.ep < ep; ++at.ep)
          if (!ranks_.contains(at))
            fail(fmt::format(
                "a checkpoint of {} tensor, {} pipeline and {} expert ranks must have a folder of each; "
                "got none of tensor rank {}, pipeline rank {}, expert rank {}; copy the folder again",
                tp, pp, ep, at.tp, at.pp, at.ep));
    if (static_cast<std::int64_t>(ranks_.size()) != tp * pp * ep)
      fail(fmt::format(
          "a checkpoint of {} model-parallel ranks must have as many folders; got {}; remove those of "
          "another checkpoint",
          tp * pp * ep, ranks_.size()));
  }

  void read_common(const TorchFile& first) {
    const Value& root = first.root();
    source_.args = to_json(pickle::find(&root, "args"));
    if (!source_.args.is_object())
      fail(
          "a legacy checkpoint of Megatron must hold the args of its run; got none; convert it with Megatron");
    source_.common = nlohmann::json::object();
    for (const char* key :
         {"iteration", "checkpoint_version", "opt_param_scheduler", "num_floating_point_operations_so_far"})
      if (const Value* value = pickle::find(&root, key)) source_.common[key] = to_json(value);
    const nlohmann::json optimizer = to_json(pickle::find(&root, "optimizer"));
    if (optimizer.is_object() && optimizer.contains("optimizer") && optimizer["optimizer"].is_object() &&
        optimizer["optimizer"].contains("param_groups"))
      source_.param_groups = optimizer["optimizer"]["param_groups"];
    gated_ = flag_arg(source_.args, "swiglu", false);
    experts_ = integer_arg(source_.args, "num_experts", 0);
    virtual_stages_ =
        std::max<std::int64_t>(integer_arg(source_.args, "virtual_pipeline_model_parallel_size", 1), 1);
    if (const double version = source_.common.value("checkpoint_version", 0.0); version < 3.0)
      fail(fmt::format(
          "a legacy checkpoint must have checkpoint_version 3.0, as Megatron writes since 2021; got {}; "
          "load and save it with Megatron",
          version));
  }

  std::int64_t layers_per_chunk() const {
    return integer_arg(source_.args, "num_layers", 0) /
           (integer_arg(source_.args, "pipeline_model_parallel_size", 1) * virtual_stages_);
  }

  void add_chunk(const Position& at, const TorchFile& file, std::int64_t vp) {
    const Value* model = pickle::find(&file.root(), "model");
    if (model == nullptr) model = pickle::find(&file.root(), fmt::format("model{}", vp).c_str());
    if (model == nullptr || !model->is(Kind::kDict))
      fail(fmt::format("{} must hold a model; got none", file.source()));
    const std::int64_t pp = integer_arg(source_.args, "pipeline_model_parallel_size", 1);
    const std::int64_t ep =
        std::max<std::int64_t>(integer_arg(source_.args, "expert_model_parallel_size", 1), 1);
    const std::int64_t first_layer = (vp * pp + at.pp) * layers_per_chunk();
    for (std::size_t i = 0; i + 1 < model->items.size(); i += 2) {
      const Value &key = *model->items[i], &value = *model->items[i + 1];
      if (!key.is(Kind::kText) || !TorchFile::is_tensor(value) ||
          key.text.find("_extra_state") != std::string::npos)
        continue;
      std::string name = key.text.starts_with("module.") ? key.text.substr(7) : key.text;
      name = with_global_layer(with_global_expert(name, at.ep * (experts_ / ep)), first_layer);
      add_rank_tensor(name, at, file.tensor(value));
    }
  }

  /// Adds a rank's tensor. What the ranks hold twice is taken once: dense tensors of other expert ranks, and
  /// the last stage's copy of tied embeddings.
  void add_rank_tensor(const std::string& name, const Position& at, at::Tensor data) {
    const bool is_expert = name.find(".mlp.experts.experts.") != std::string::npos;
    const bool tied = !flag_arg(source_.args, "untie_embeddings_and_output_weights", true);
    if ((!is_expert && at.ep > 0) || (tied && name == "output_layer.weight")) return;
    const std::int64_t tp = integer_arg(source_.args, "tensor_model_parallel_size", 1);
    const Share share{.rank = at.tp,
                      .size = is_expert ? integer_arg(source_.args, "expert_tensor_parallel_size", tp) : tp,
                      .split = models::megatron::split_of(name, gated_),
                      .row_dim = 0};
    const Sizes local = data.sizes().vec();
    if (share.rank >= share.size || (local.empty() && share.split != models::megatron::Split::kNone)) return;
    ComposedTensor one{
        .dtype = data.scalar_type(), .shape = global_shape(local, share), .parts = {}, .compute = {}};
    add_share(one, local, {{Sizes(local.size(), 0), local}, std::move(data)}, share);
    add_numbered(source_.model, name, one, experts_);
  }

  // ---- optimizer

  void read_optimizer() {
    if (std::ranges::none_of(ranks_, [](const auto& rank) { return rank.second.optimizer.has_value(); })) {
      if (source_.param_groups.is_array())
        source_.notes.emplace_back(
            "optimizer states of the legacy format without --use-distributed-optimizer are not read");
      return;
    }
    for (const ModuleOrder order : {ModuleOrder::kTransformerEngine, ModuleOrder::kLocal}) {
      std::map<std::string, Tensors> states;
      if (!unflatten_ranks(order, states) || !masters_equal_weights(source_.model, states["param"])) continue;
      source_.optimizer = std::move(states);
      return;
    }
    fail(
        "optimizer states in flat buffers must be in the parameter order of Transformer Engine's or Megatron's "
        "modules; got masters that equal the weights in neither; save them as torch_dist with Megatron, or add "
        "--no-load-optim");
  }

  bool unflatten_ranks(ModuleOrder order, std::map<std::string, Tensors>& states) {
    for (const auto& [at, files] : ranks_) {
      if (!files.optimizer) continue;
      const Value& root = files.optimizer->root();
      const bool is_chain = root.is(Kind::kList);  // of dense parameters, then of experts
      const std::size_t chains = is_chain ? root.items.size() : 1;
      for (std::size_t chain = 0; chain < chains; ++chain) {
        const Value& part = is_chain ? *root.items[chain] : root;
        if (chain == 0 && at.ep > 0) continue;
        for (std::int64_t vp = 0; vp < virtual_stages_; ++vp) {
          const Value* buffers = find_integer(part, vp);
          if (buffers != nullptr &&
              !add_buffers(*files.optimizer, *buffers, {at.tp, at.pp, at.ep, vp}, chain == 1, order, states))
            return false;
        }
      }
    }
    return true;
  }

  /// Adds the buffers of a chunk, by dtypes: {param, exp_avg, exp_avg_sq: 1-D tensors, numel_unpadded}.
  bool add_buffers(const TorchFile& file, const Value& by_dtypes, const RankChunk& chunk, bool experts,
                   ModuleOrder order, std::map<std::string, Tensors>& states) {
    for (std::size_t i = 0; i + 1 < by_dtypes.items.size(); i += 2) {
      if (!by_dtypes.items[i]->is(Kind::kTuple)) continue;
      const Value& values = *by_dtypes.items[i + 1];
      const auto params = params_of(source_, chunk, experts, order);
      FlatBuffer flat{.buckets = {}, .unpadded = bucket_sizes(params)};
      if (!fits(params, flat.unpadded)) return false;
      for (const char* state : kStates) {
        const Value* stored = pickle::find(&values, state);
        if (stored == nullptr) continue;
        const at::Tensor all = file.tensor(*stored);
        flat.buckets.clear();
        std::int64_t begin = 0;
        for (const std::int64_t size : flat.unpadded) {
          if (all.dim() != 1 || begin + size > all.numel()) return false;
          flat.buckets.push_back(checkpoint::composed(all.narrow(0, begin, size)));
          begin += size;
        }
        if (begin != all.numel()) return false;
        unflatten(flat, params, source_.model, states[state]);
      }
    }
    return true;
  }

  /// Buckets are joined without their padding and their sizes are not kept: a bucket ends after the parameter
  /// with which it reaches the bucket size. Without overlap of reductions there is one.
  std::vector<std::int64_t> bucket_sizes(const std::vector<FlatParam>& params) const {
    constexpr std::int64_t kAlignment = 64, kLeast = 40'000'000, kPerRank = 1'000'000;
    std::int64_t most = integer_arg(source_.args, "ddp_bucket_size", 0);
    if (most == 0) most = std::max(kLeast, kPerRank * integer_arg(source_.args, "data_parallel_size", 1));
    const bool one = !flag_arg(source_.args, "overlap_grad_reduce", false);
    std::vector<std::int64_t> sizes;
    std::int64_t at = 0;
    for (auto param = params.rbegin(); param != params.rend(); ++param) {
      at = (at + kAlignment - 1) / kAlignment * kAlignment;
      at += std::accumulate(param->shape.begin(), param->shape.end(), std::int64_t{1}, std::multiplies<>());
      if (one || at < most) continue;
      sizes.push_back(at);
      at = 0;
    }
    if (at > 0) sizes.push_back(at);
    return sizes;
  }

  Source source_;
  std::map<Position, RankFiles> ranks_;
  std::int64_t experts_ = 0, virtual_stages_ = 1;
  bool gated_ = false;
};

}  // namespace

Source open_legacy(const fs::path& folder) { return LegacyReader(folder).read(); }

}  // namespace colonnade::convert::megatron
