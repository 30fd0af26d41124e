// See upcycling.h.
#include "colonnade/job/upcycling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/convert/slices.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/tensor/fill.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointReader;
using checkpoint::Slice;

constexpr const char* kExpertCount = "num_experts";

std::string experts_in(const TextSettings& settings) {
  const auto found = settings.find(kExpertCount);
  return found == settings.end() ? "0" : found->second;
}

/// Whether the run that saved the checkpoint was started by upcycling.
bool is_of_upcycled_run(const nlohmann::json& state) {
  return state.is_object() &&
         state.value("settings", nlohmann::json::object()).value("moe_use_upcycling", "false") == "true";
}

/// Whether `source` is a checkpoint in --save.
bool is_in_save_folder(const config::Run& run, const CheckpointReader& source) {
  std::error_code absent;
  return !run.checkpoint.save.empty() &&
         fs::equivalent(source.folder().parent_path(), fs::path(run.checkpoint.save) / "checkpoints", absent);
}

/// The dense model whose MLPs become the experts of `model`.
config::Model dense_model(config::Model model) {
  model.ffn_hidden_size *= model.moe.upcycling_granularity;
  model.moe = {};
  return model;
}

/// Parts of a dense MLP, each of which becomes an expert.
std::int64_t parts_of_mlp(const config::Model& model) {
  return model.ffn_hidden_size * model.moe.upcycling_granularity / model.moe.ffn_hidden_size;
}

/// Factor of the weights of both expert matrices, after which the output has the scale of the dense MLP's.
double weight_scale(const config::Model& model) {
  const auto parts = static_cast<double>(parts_of_mlp(model));
  const double output = model.moe.router_pre_softmax ? static_cast<double>(model.moe.num_experts) * parts /
                                                           static_cast<double>(model.moe.router_topk)
                                                     : parts;
  const bool is_cubic = model.is_gated() || model.activation == config::Activation::kSquaredRelu;
  return is_cubic ? std::cbrt(output) : std::sqrt(output);
}

/// "decoder.layers.0.mlp.experts.linear_fc1.weight" -> "decoder.layers.0.mlp.linear_fc1.weight"
std::string dense_name(std::string name) {
  constexpr std::string_view kInMlp = ".mlp.experts.";
  const std::size_t at = name.find(kInMlp);
  return at == std::string::npos ? name : name.replace(at, kInMlp.size(), ".mlp.");
}

bool is_router(std::string_view name) {
  return name.ends_with(".mlp.router.weight") || name.ends_with(".mlp.router.bias");
}

/// Source of one expert's values: part `part` of `parts` of the dense parameter `dense`.
struct DensePart {
  const CheckpointReader& source;
  const layout::ParamSpec& dense;
  std::optional<models::hf::Naming> naming;
  std::int64_t part = 0, parts = 1;

  void read(const Slice& box) const {
    for (const Slice& slice : convert::box_slices(dense, box, naming)) source.read_into(slice);
  }
};

/// Reads `values`, the box at `offset` of one expert's matrix or bias. `divided`: the expert parameter's
/// dimension over which the dense one is divided; null: the expert has all of it.
void read_expert(const DensePart& from, const layout::ShardedDim* divided, const at::Tensor& values,
                 const checkpoint::Sizes& offset) {
  if (divided == nullptr)
    return from.read(Slice{.name = "", .global_shape = from.dense.shape, .offset = offset, .data = values});
  const int dim = divided->dim - 1;  // without the dimension of experts
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t first = offset[d], end = first + values.size(dim);
  std::int64_t begin = 0;  // of the segment in the expert
  for (const layout::DimSegment& segment : divided->segments) {
    const std::int64_t from_row = std::max(first, begin), to_row = std::min(end, begin + segment.size);
    if (from_row < to_row) {
      Slice box{.name = "", .global_shape = from.dense.shape, .offset = offset, .data = {}};
      box.data = values.narrow(dim, from_row - first, to_row - from_row);
      box.offset[d] = begin * from.parts + from.part * segment.size + from_row - begin;
      from.read(box);
    }
    begin += segment.size;
  }
}

/// Reads this rank's values of an expert parameter.
void read_experts(Job& job, const CheckpointReader& source, const tensor::Parameter& parameter,
                  const layout::ParamSpec& dense) {
  const config::Model& model = job.run.model;
  const data_parallel::LocalSlice here = job.buffers().local_slice(parameter);
  const bool is_second_bias = parameter.spec.sharded_dim(layout::Axis::kEtp) == nullptr;
  DensePart from{.source = source,
                 .dense = dense,
                 .naming = models::hf::naming_of(dense_model(model)),
                 .parts = parts_of_mlp(model)};
  for (const Slice& box : convert::state_slices("", parameter, here.begin, here.values, /*owner=*/true)) {
    const at::ScalarType type = box.data.scalar_type();
    const at::Tensor values =
        at::empty(box.data.sizes(), box.data.options().dtype(c10::elementSize(type) < 4 ? at::kFloat : type));
    const checkpoint::Sizes offset(box.offset.begin() + 1, box.offset.end());
    for (std::int64_t i = 0; i < values.size(0); ++i) {
      from.part = (box.offset[0] + i) % from.parts;
      read_expert(from, parameter.spec.sharded_dim(layout::Axis::kEtp), values.select(0, i), offset);
    }
    box.data.copy_(is_second_bias ? values : values * weight_scale(model));
  }
}

/// Repeats each initial row of a router for the parts of one MLP.
void repeat_router_rows(Job& job, const tensor::Parameter& parameter, std::int64_t parts) {
  const data_parallel::LocalSlice here = job.buffers().local_slice(parameter);
  const at::Tensor initial = at::empty(parameter.spec.shape, at::dtype(at::kFloat));
  tensor::fill_initial(initial, parameter.spec, layout::shard(parameter.spec, {}),
                       static_cast<std::uint64_t>(job.run.training.seed));
  const at::Tensor rows = initial.narrow(0, 0, initial.size(0) / parts).repeat_interleave(parts, 0);
  here.values.copy_(rows.flatten().narrow(0, here.begin, here.values.numel()));
}

/// The fault of an FFN hidden size that does not fit the dense one; "" if it does.
std::string ffn_fault(const config::Run& run, std::int64_t dense, const std::string& source) {
  const std::int64_t granularity = run.model.moe.upcycling_granularity, given = run.model.ffn_hidden_size;
  if (run.given.contains("ffn_hidden_size") && !run.invalid_keys.contains("ffn_hidden_size") &&
      given * granularity != dense)
    return fmt::format(
        "--ffn-hidden-size times --moe-upcycling-granularity must be the FFN hidden size of the dense checkpoint; "
        "got {} x {} and {} in {}; {} [upcycling-ffn]",
        given, granularity, dense, source,
        given > 0 && dense % given == 0 ? fmt::format("set --moe-upcycling-granularity {}", dense / given)
                                        : "remove --ffn-hidden-size");
  if (dense % granularity != 0)
    return fmt::format(
        "--moe-upcycling-granularity must divide the FFN hidden size of the dense checkpoint; got {} and {} in {}; "
        "choose a divisor [upcycling-ffn]",
        granularity, dense, source);
  return "";
}

}  // namespace

bool upcycles(const config::Run& run, const CheckpointReader& source) {
  return run.model.moe.use_upcycling && experts_in(model_settings(run, source)) == "0";
}

void adapt_to_upcycling(const config::Run& run, const CheckpointReader& source, TextSettings& settings) {
  if (!run.model.moe.use_upcycling) return;
  const std::string folder = source.folder().string();
  if (const std::string experts = experts_in(settings); experts != "0") {
    if (is_of_upcycled_run(source.state()) || is_in_save_folder(run, source)) return;
    throw ConfigError(fmt::format(
        "--moe-use-upcycling requires a dense checkpoint; got one with {} experts in {}; remove the flag to start "
        "from these experts [upcycling-dense]",
        experts, folder));
  }
  std::erase_if(settings, [](const auto& setting) {
    return setting.first == kExpertCount || setting.first.starts_with("moe_");
  });
  const auto ffn = settings.find("ffn_hidden_size");
  if (ffn == settings.end()) return;
  const std::int64_t dense = std::atoll(ffn->second.c_str());
  if (const std::string fault = ffn_fault(run, dense, folder); !fault.empty()) throw ConfigError(fault);
  ffn->second = std::to_string(dense / run.model.moe.upcycling_granularity);
}

void resume_upcycled_run(config::Run& run) {
  config::Checkpoint& c = run.checkpoint;
  if (!run.model.moe.use_upcycling || c.save.empty() || c.load == c.save) return;
  const auto found = checkpoint::find_checkpoint(c.save, std::nullopt, {}, checkpoint::Check::kSizes);
  if (!found || !is_of_upcycled_run(CheckpointReader::open_native(found->folder).state())) return;
  run.notes.push_back(fmt::format("--moe-use-upcycling: the upcycled run in {} resumes; {} is not read again",
                                  c.save, c.load.empty() ? c.pretrained_checkpoint : c.load));
  c.load = c.save;
  c.finetune = c.no_load_optim = false;
  c.ckpt_step.reset();
}

void upcycle(Job& job, const CheckpointReader& source) {
  const at::NoGradGuard no_grad;
  require_same_builder(source, job.model.from_settings);
  if (!job.model.from_settings)
    throw ConfigError(
        "--moe-use-upcycling requires a model that is built from settings; got a model of a program's own builder; "
        "set its initial values there");
  const config::Model& model = job.run.model;
  const config::Model dense = dense_model(model);
  require_model_tensors(source, dense, /*logs_unread=*/job.ranks.world().rank() == 0);
  const auto naming = models::hf::naming_of(dense);
  std::map<std::string, layout::ParamSpec> specs;
  for (layout::ParamSpec& spec : layout::model_params(dense, {})) {
    std::string name = spec.name;
    specs.emplace(std::move(name), std::move(spec));
  }
  const std::int64_t parts = parts_of_mlp(model);
  for (const tensor::Parameter* parameter : job.parameters()) {
    const std::string& name = parameter->spec.name;
    const data_parallel::LocalSlice here = job.buffers().local_slice(*parameter);
    if (const auto found = specs.find(dense_name(name)); found == specs.end()) {
      if (parts > 1 && is_router(name)) repeat_router_rows(job, *parameter, parts);
    } else if (found->first != name) {
      read_experts(job, source, *parameter, found->second);
    } else {
      for (const Slice& slice :
           convert::model_slices(*parameter, here.begin, here.values, naming, /*owner=*/true))
        source.read_into(slice);
    }
  }
  job.optimizer().adopt_parameters();
}

}  // namespace colonnade::job
