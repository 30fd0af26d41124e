// The model that a job trains: the stages of one rank, made by a builder from settings and groups.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/stages.h"
#include "colonnade/pipeline/executor.h"
#include "colonnade/tensor/block.h"

namespace colonnade::job {

/// The blocks of pipeline rank `pp_rank`, one entry per model chunk.
std::vector<layout::StageBlocks> blocks_of(const config::Run& run, int pp_rank);

/// Shapes of the activations between stages: with tokens in the batch, this rank's rows of the tokens of all
/// sequences (tensor::Batch::tokens_per_sample); without, the settings' shape. `blocks`: one entry per model
/// chunk.
pipeline::Activation activation_of(const config::Run& run, const std::vector<layout::StageBlocks>& blocks,
                                   const layout::SequenceShard& part);

/// Process groups and options of this rank's layers; parameters are initialized from the seed. `parameters`:
/// their dtype and device.
layers::Context layer_context(const config::Run& run, comm::Communicators& ranks,
                              const at::TensorOptions& parameters);

/// Groups of the pipeline stages that hold copies of the same parameters (layout::holders). Collective.
std::map<layout::HeldBy, comm::Group> stage_groups(const config::Run& run, comm::Communicators& ranks);

struct Model {
  std::vector<std::unique_ptr<tensor::Stage>> stages;  ///< one per model chunk
  /// The model is built from the settings: checkpoints use the tensor names of its Hugging Face class.
  /// Parameters of a custom builder keep their own names, and no Hugging Face class is recorded for them.
  bool from_settings = false;
};

/// Inputs of a model builder: settings, groups, and the blocks of this rank's stages.
struct BuildContext {
  const config::Run& run;
  comm::Communicators& ranks;
  std::vector<layout::StageBlocks> blocks;  ///< one per model chunk of this rank
  layers::Context layers;
};

using ModelBuilder = std::function<Model(const BuildContext& context)>;

/// The default builder, of the model that the settings describe (models::build).
Model build_model(const BuildContext& context);

}  // namespace colonnade::job
