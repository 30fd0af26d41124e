// Shared by inference tests: recorded models in any layout over thread ranks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/comm/thread_ranks.h"
#include "colonnade/config/parse.h"
#include "colonnade/inference/inference_model.h"
#include "colonnade/job/prepare.h"
#include "support/device.h"
#include "support/vectors.h"

namespace colonnade::inference::test {

/// A layout of tp x pp x dp ranks with additional `flags`.
struct Layout {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  std::vector<std::string> flags = {};
};

inline std::string vectors(const std::string& model) {
  return fmt::format("{}/hf/{}", colonnade::test::vectors(), model);
}

/// Settings of a recorded Hugging Face model in `layout`.
inline config::Run run_of(const std::string& model, const Layout& layout = {}) {
  std::vector<std::string> words = {"gpt",
                                    "--pretrained-checkpoint",
                                    vectors(model),
                                    "--tensor-model-parallel-size",
                                    std::to_string(layout.tensor),
                                    "--pipeline-model-parallel-size",
                                    std::to_string(layout.pipeline),
                                    "--device",
                                    colonnade::test::device_flag()};
  words.insert(words.end(), layout.flags.begin(), layout.flags.end());
  config::Run run = config::parse(words);
  run.parallel.world_size = layout.tensor * layout.pipeline * layout.data;
  job::prepare(run, rules::Purpose::kModel);
  return run;
}

/// Calls `body` on every rank of `layout` with the recorded model.
inline void with_model(const std::string& model, const Layout& layout,
                       const std::function<void(InferenceModel&)>& body) {
  const config::Run run = run_of(model, layout);
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    InferenceModel network(run, ranks, checkpoint::CheckpointReader::open_hugging_face(vectors(model)));
    body(network);
  });
}

/// A recorded tensor of a model: "in.input_ids", "in.labels", "logits", "loss".
inline at::Tensor recorded(const std::string& model, const std::string& name) {
  return checkpoint::SafetensorsFile(fmt::format("{}/vectors.safetensors", vectors(model))).view(name);
}

}  // namespace colonnade::inference::test
