// What a job trains: the stages of one rank, made by a builder that sees where it stands.
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

/// The blocks of pipeline rank `pp_rank`, one entry per chunk.
std::vector<layout::StageBlocks> blocks_of(const config::Run& run, int pp_rank);

/// Of a batch with tokens [b, s] their rows of this rank, those of an encoder's tokens with them; else those
/// of the settings. `blocks`: by chunk.
pipeline::Activation activation_of(const config::Run& run, const std::vector<layout::StageBlocks>& blocks,
                                   const layout::SequencePart& part);

/// The groups of this rank's layers, with values drawn.
layers::Context layer_context(const config::Run& run, comm::Communicators& ranks,
                              const at::TensorOptions& options);

/// The stages that hold parameters together with this one (layout::holders). Collective.
std::map<layout::HeldBy, comm::Group> stage_groups(const config::Run& run, comm::Communicators& ranks);

struct Model {
  std::vector<std::unique_ptr<tensor::Stage>> stages;  ///< chunk order
  /// The model that the settings describe: checkpoints name its tensors as its Hugging Face class does.
  /// Parameters of a builder of one's own keep their names, and no Hugging Face class is said to read them.
  bool of_settings = false;
};

/// Where a model is built: settings, groups, and the blocks that this rank's stages hold.
struct Site {
  const config::Run& run;
  comm::Communicators& ranks;
  std::vector<layout::StageBlocks> blocks;  ///< one per chunk of this rank
  layers::Context layers;
};

using ModelBuilder = std::function<Model(const Site& site)>;

/// The model that the settings describe, the default builder: a GPT (models/gpt), or with an encoder T5
/// (models/t5).
Model build_model(const Site& site);

}  // namespace colonnade::job
