// The smallest layouts with each reduction.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "colonnade/layout/buckets.h"
#include "layouts/models.h"
#include "support/reductions.h"

namespace colonnade::test {

/// A two-layer model distributed over some ranks.
struct Small {
  std::string model;
  int world;
  std::string cut;
};

inline const std::string kTp2 = "--tensor-model-parallel-size 2 ";
inline const std::string kSp = kTp2 + "--sequence-parallel ";
inline const std::string kCp2 = "--context-parallel-size 2 ";
inline const std::string kEp2 = "--expert-model-parallel-size 2 ";
inline const std::string kTwoLevels =
    "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2";

inline std::vector<Small> layouts_without_experts() {
  const std::string latent =
      "--multi-latent-attention --position-embedding-type rope --kv-lora-rank 12 --qk-head-dim 6 "
      "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 5 --qk-layernorm --normalization RMSNorm ";
  const std::string narrow = latent + "--q-lora-rank 16 ";
  return {
      {kTied, 2, ""},
      {kTied, 2, "--use-distributed-optimizer"},
      {std::string(kUntied) + "--calculate-per-token-loss ", 2, ""},
      {kUntied, 2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"},
      {kUntied, 2, "--use-megatron-fsdp"},
      {kUntied, 2, "--deterministic-mode --use-distributed-optimizer"},
      {kUntied, 2, "--deterministic-mode"},
      {kTied, 2, "--use-megatron-fsdp"},
      {kTied, 2, "--deterministic-mode"},
      {kTied, 2, kTp2},
      {kTied, 2, kSp},
      {std::string(kUntied) + "--num-query-groups 1 --qk-layernorm ", 2, kTp2},
      {std::string(kUntied) + "--num-query-groups 1 ", 4, kTp2 + "--use-megatron-fsdp"},
      {std::string(kUntied) + "--qk-layernorm ", 2, kSp},
      {std::string(kUntied) + "--attention-output-gate --qk-l2-norm ", 2, kSp},
      {std::string(kMtp) + "--use-mup --mup-base-hidden-size 8 --mup-embedding-mult 2 ", 2, kSp},
      {std::string(kUntied) + "--use-mup --mup-base-hidden-size 8 --optimizer sgd ", 2,
       "--pipeline-model-parallel-size 2"},
      {std::string(kUntied) + "--qk-clip --qk-clip-threshold 0.1 ", 2, "--use-distributed-optimizer"},
      {std::string(kUntied) + "--num-query-groups 1 --attention-output-gate ", 4, kTp2 + kCp2},
      {latent, 2, kTp2},
      {latent, 2, kSp},
      {std::string(kUntied) + "--mtp-num-layers 1 ", 2, kSp},
      {kMtp, 2, kTp2},
      {kTied, 2, kCp2},
      {latent, 2, kCp2},
      {narrow, 2, kSp},
      {narrow, 2, kCp2},
      {narrow, 2, kCp2 + "--cp-comm-type all_gather"},
      {narrow, 4, kTwoLevels},
      {std::string(kUntied) + "--mtp-num-layers 1 --softmax-type learnable ", 2, kCp2},
      {kTied, 2, kCp2 + "--cp-comm-type all_gather"},
      {kTied, 2, "--pipeline-model-parallel-size 2"},
      {kEncoder, 4, "--pipeline-model-parallel-size 4"},
      {kBert, 2, kTp2},
      {kBert, 2, kSp},
  };
}

inline std::vector<Small> layouts_of_experts() {
  const std::string steered = std::string(kMoe) +
                              "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
                              "--moe-router-load-balancing-type none --moe-aux-loss-coeff 0 --num-experts 8 ";
  const std::string of_step = std::string(kMoe) + "--moe-router-load-balancing-type global_aux_loss ";
  return {
      {kMoe, 2, kEp2},
      {kMoe, 2, kEp2 + "--use-distributed-optimizer --moe-token-dispatcher-type alltoall"},
      {kMoe, 2, "--expert-tensor-parallel-size 2"},
      {kMoe, 2, kSp},
      {kMoe, 2, kCp2},
      {of_step, 2, kSp},
      {steered, 2, kEp2},
      {kMoe, 4, kEp2},
      {kMoe, 4, kEp2 + "--deterministic-mode"},
      {kMoe, 4, kEp2 + "--use-distributed-optimizer"},
      {kMoe, 4, kSp + kEp2},
  };
}

/// Layouts with two distributed-optimizer instances.
inline std::vector<Small> layouts_of_instances() {
  const std::string instances = "--num-distributed-optimizer-instances 2 ", whole = "--use-megatron-fsdp ",
                    shared = instances + "--outer-dp-sharding-strategy optim ",
                    optimizer = "--use-distributed-optimizer ";
  return {
      {kTied, 2, optimizer + instances},
      {kTied, 2, optimizer + shared},
      {kTied, 4, optimizer + instances},
      {kTied, 4, optimizer + shared},
      {kUntied, 4, whole + instances},
      {kUntied, 4, whole + shared},
      {kMoe, 4, kEp2 + optimizer + instances},
      {kMoe, 4, kEp2 + optimizer + shared},
      {kMoe, 8, kSp + kEp2 + "--expert-tensor-parallel-size 1 " + optimizer + instances},
      {kMoe, 8, kSp + kEp2 + "--expert-tensor-parallel-size 1 " + optimizer + shared},
  };
}

inline std::vector<Small> layouts_of_exchanged_context() {
  return {
      {kMtp, 2, kCp2 + "--cp-comm-type all_gather"},
      {kUntied, 4, kTwoLevels},
      {kMtp, 4, kTwoLevels},
  };
}

/// A reduction is tested in the first layout that has it.
inline const std::vector<Small>& small_layouts() {
  static const std::vector<Small> kLayouts = [] {
    std::vector<Small> all;
    for (const auto& part : {layouts_without_experts(), layouts_of_experts(), layouts_of_instances(),
                             layouts_of_exchanged_context()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kLayouts;
}

inline std::string of_two_layers(const std::string& model) {
  return model + "--num-layers 2 --global-batch-size 4 ";
}

/// Data-parallel sharding of a layout: reductions of one name differ by it.
inline layout::Sharding sharding_of(const Small& layout) {
  return layout::sharding_of(small_run(layout.world, of_two_layers(layout.model) + layout.cut)->parallel);
}

/// One step in float64 with `reductions` between the ranks.
inline train::TrainedLayout one_step(const Small& layout, Reductions& reductions) {
  const config::Run run = settings(layout.world, words(kSmall + of_two_layers(layout.model) + layout.cut));
  return train::train_layout({.run = run, .wrap_factory = between(reductions)}, samples(run), 1,
                             train::Precision::kFloat64);
}

}  // namespace colonnade::test
