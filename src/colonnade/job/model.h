// What a job trains: the stages of one rank, made by a builder that sees where it stands.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/layers/context.h"
#include "colonnade/plan/stages.h"
#include "colonnade/tensor/block.h"

namespace colonnade::job {

/// The blocks of pipeline rank `pp_rank`, one entry per chunk.
std::vector<plan::StageBlocks> blocks_of(const config::Run& run, int pp_rank);

/// The groups of this rank's layers, with values drawn.
layers::Context layer_context(const config::Run& run, comm::Communicators& ranks,
                              const at::TensorOptions& options);

/// The ranks of the first and the last stage, where these are two: what holds tied embeddings twice.
comm::Group embedding_group(const config::Run& run, comm::Communicators& ranks);

struct Model {
  std::vector<std::unique_ptr<tensor::Stage>> stages;  ///< chunk order
  tensor::Parameter* tied = nullptr;  ///< tied embeddings: the table or its copy, where this rank holds one
};

/// Where a model is built: settings, groups, and the blocks that this rank's stages hold.
struct Site {
  const config::Run& run;
  comm::Communicators& ranks;
  std::vector<plan::StageBlocks> blocks;  ///< one per chunk of this rank
  layers::Context layers;
};

using ModelBuilder = std::function<Model(const Site& site)>;

/// The GPT family (models/gpt), the default builder.
Model build_gpt(const Site& site);

}  // namespace colonnade::job
