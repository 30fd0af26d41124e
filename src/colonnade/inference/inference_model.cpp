// See inference_model.h.
#include "colonnade/inference/inference_model.h"

#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/convert/slices.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/job/job.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::inference {
namespace {

using layout::Axis;

/// One message tag is enough: messages between two ranks arrive in the order sent.
constexpr int kActivations = 0;

void read_weights(const job::Model& model, const config::Model& settings,
                  const checkpoint::CheckpointReader& source, bool reports) {
  const at::NoGradGuard no_grad;
  job::require_same_builder(source, model.from_settings);
  job::require_model_tensors(source, settings, reports);
  const auto naming = models::hf::naming_of(settings);
  for (const auto& stage : model.stages)
    for (const tensor::Parameter* parameter : stage->parameters())
      for (const auto& slice : convert::model_slices(*parameter, naming, /*owner=*/true))
        source.read_into(slice);
}

}  // namespace

InferenceModel::InferenceModel(config::Run run, comm::Communicators ranks,
                               const checkpoint::CheckpointReader& source)
    : run_(std::move(run)),
      ranks_(std::move(ranks)),
      pp_(ranks_.group({Axis::kPp})),
      placement_(layout::placement_of(layout::split_stages(run_.model, run_.parallel), run_.parallel)),
      options_(tensor::options(config::dtypes_of(run_).residual, job::device_of(run_))) {
  progress().set_phase("weights");
  if (run_.parallel.context_parallel_size > 1 && ranks_.rank() == 0)
    log::info(
        "--context-parallel-size: does not shard sequences in inference; got {}; its ranks act as "
        "data-parallel ranks",
        run_.parallel.context_parallel_size);
  run_.parallel.sequence_parallel = false;
  run_.parallel.context_parallel_size = 1;  // context ranks act as replicas
  run_.parallel.hybrid_context_parallel = false;
  layers::Context context =
      job::layer_context(run_, ranks_, tensor::options(config::dtypes_of(run_).parameter, options_.device()));
  context.random_init = false;
  model_ = job::build_model({run_, ranks_, job::blocks_of(run_, pp_.rank()), std::move(context)});
  read_weights(model_, run_.model, source, /*reports=*/ranks_.rank() == 0);
}

/// Runs the blocks of one stage; with `last_token` the head gets only the last token.
at::Tensor InferenceModel::forward_chunk(std::size_t chunk, at::Tensor x, const tensor::Pass& pass,
                                         bool last_token) const {
  const tensor::Stage& stage = *model_.stages[chunk];
  for (const auto& block : stage.blocks) {
    const bool head = stage.last && block == stage.blocks.back();
    if (head && last_token) x = x.narrow(0, x.size(0) - 1, 1);
    x = block->forward(x, pass);
  }
  return x;
}

at::Tensor InferenceModel::receive(int stage, const tensor::Batch& batch) {
  const std::int64_t samples = batch.at(tensor::Field::kTokens).size(0);
  at::Tensor x = at::empty({batch.tokens_per_sample(), samples, run_.model.hidden_size}, options_);
  pp_.recv(x, placement_.location(stage - 1).rank, kActivations,
           fmt::format("inference / activation into stage {}", stage))
      .wait();
  return x;
}

at::Tensor InferenceModel::forward(const tensor::Batch& batch, const ForwardOptions& options) {
  const at::NoGradGuard no_grad;
  const tensor::Pass pass{
      .batch = batch, .training = false, .output = options.output, .cache = options.cache};
  at::Tensor x;
  for (std::size_t chunk = 0; chunk < model_.stages.size(); ++chunk) {
    progress().heartbeat();
    const int stage = placement_.stage(pp_.rank(), static_cast<int>(chunk));
    if (placement_.crosses(stage - 1)) x = receive(stage, batch);
    x = forward_chunk(chunk, x, pass, options.last_token);
    if (placement_.crosses(stage))
      pending_send_ = pp_.send(x.contiguous(), placement_.location(stage + 1).rank, kActivations,
                               fmt::format("inference / activation out of stage {}", stage));
  }
  return model_.stages.back()->last ? x : at::Tensor();
}

int InferenceModel::leader() const {
  const layout::Mesh& mesh = ranks_.mesh();
  const int last = placement_.location(placement_.stages() - 1).rank;
  int rank = 0;
  while (mesh.coord(rank, Axis::kPp) != last || mesh.coord(rank, Axis::kTp) != 0) ++rank;
  return rank;
}

void InferenceModel::broadcast_from_leader(const at::Tensor& tensor, std::string_view what) {
  ranks_.world().broadcast(tensor, leader(), what).wait();
}

std::int64_t longest_sequence(const config::Model& model) {
  if (model.position_embedding == config::PositionEmbedding::kNone ||
      model.position_embedding == config::PositionEmbedding::kRelative)
    return std::numeric_limits<std::int64_t>::max();
  return model.max_position_embeddings;
}

}  // namespace colonnade::inference
