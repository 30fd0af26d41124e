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

/// Ordered by number of ranks: a reduction is tested in the first layout that has it.
inline const std::vector<Small>& small_layouts() {
  const std::string latent =
      "--multi-latent-attention --position-embedding-type rope --kv-lora-rank 12 --qk-head-dim 6 "
      "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 5 --qk-layernorm --normalization RMSNorm ";
  const std::string narrow = latent + "--q-lora-rank 16 ";
  const std::string steered = std::string(kMoe) +
                              "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
                              "--moe-router-load-balancing-type none --moe-aux-loss-coeff 0 --num-experts 8 ";
  const std::string of_step = std::string(kMoe) + "--moe-router-load-balancing-type global_aux_loss ";
  const std::string tp2 = "--tensor-model-parallel-size 2 ", sp = tp2 + "--sequence-parallel ",
                    ep2 = "--expert-model-parallel-size 2 ", cp2 = "--context-parallel-size 2 ";
  const std::string instances = "--num-distributed-optimizer-instances 2 ", whole = "--use-megatron-fsdp ",
                    shared = instances + "--outer-dp-sharding-strategy optim ",
                    optimizer = "--use-distributed-optimizer ";
  static const std::vector<Small> kLayouts = {
      {kTied, 2, ""},
      {kTied, 2, "--use-distributed-optimizer"},
      {std::string(kUntied) + "--calculate-per-token-loss ", 2, ""},
      {kUntied, 2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"},
      {kUntied, 2, "--use-megatron-fsdp"},
      {kUntied, 2, "--deterministic-mode --use-distributed-optimizer"},
      {kUntied, 2, "--deterministic-mode"},
      {kTied, 2, "--use-megatron-fsdp"},
      {kTied, 2, "--deterministic-mode"},
      {kTied, 2, tp2},
      {kTied, 2, sp},
      {std::string(kUntied) + "--num-query-groups 1 --qk-layernorm ", 2, tp2},
      {std::string(kUntied) + "--num-query-groups 1 ", 4, tp2 + "--use-megatron-fsdp"},
      {std::string(kUntied) + "--qk-layernorm ", 2, sp},
      {latent, 2, tp2},
      {latent, 2, sp},
      {std::string(kUntied) + "--mtp-num-layers 1 ", 2, sp},
      {kMtp, 2, tp2},
      {kTied, 2, cp2},
      {latent, 2, cp2},
      {narrow, 2, sp},
      {narrow, 2, cp2},
      {narrow, 2, cp2 + "--cp-comm-type all_gather"},
      {narrow, 4,
       "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"},
      {std::string(kUntied) + "--mtp-num-layers 1 --softmax-type learnable ", 2, cp2},
      {kTied, 2, cp2 + "--cp-comm-type all_gather"},
      {kTied, 2, "--pipeline-model-parallel-size 2"},
      {kEncoder, 4, "--pipeline-model-parallel-size 4"},
      {kBert, 2, tp2},
      {kBert, 2, sp},
      {kMoe, 2, ep2},
      {kMoe, 2, ep2 + "--use-distributed-optimizer --moe-token-dispatcher-type alltoall"},
      {kMoe, 2, "--expert-tensor-parallel-size 2"},
      {kMoe, 2, sp},
      {kMoe, 2, cp2},
      {of_step, 2, sp},
      {steered, 2, ep2},
      {kMoe, 4, ep2},
      {kMoe, 4, ep2 + "--deterministic-mode"},
      {kMoe, 4, ep2 + "--use-distributed-optimizer"},
      {kMoe, 4, sp + ep2},
      {kTied, 2, optimizer + instances},
      {kTied, 2, optimizer + shared},
      {kTied, 4, optimizer + instances},
      {kTied, 4, optimizer + shared},
      {kUntied, 4, whole + instances},
      {kUntied, 4, whole + shared},
      {kMoe, 4, ep2 + optimizer + instances},
      {kMoe, 4, ep2 + optimizer + shared},
      {kMoe, 8, sp + ep2 + "--expert-tensor-parallel-size 1 " + optimizer + instances},
      {kMoe, 8, sp + ep2 + "--expert-tensor-parallel-size 1 " + optimizer + shared},
      {kMtp, 2, cp2 + "--cp-comm-type all_gather"},
      {kUntied, 4,
       "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"},
      {kMtp, 4, "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"},
  };
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
