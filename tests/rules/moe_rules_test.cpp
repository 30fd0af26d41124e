// MoE rules: valid settings, one problem per mistake, agreement with Mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/layout/mesh.h"
#include "rules/rule_examples.h"

namespace colonnade::rules {
namespace {

using test::example;
using test::example_of;
using test::ids_of;
using test::problems_of;
using test::words;
using ::testing::ElementsAre;

TEST(MoeRules, AcceptValidSettings) {
  for (const char* settings :
       {"expert_model_parallel_size=2",
        "expert_model_parallel_size=4; expert_tensor_parallel_size=1",
        "expert_tensor_parallel_size=4",
        "tensor_model_parallel_size=1; expert_model_parallel_size=4",
        "use_tp_pp_dp_mapping=true; expert_tensor_parallel_size=1; expert_model_parallel_size=2",
        "ffn_hidden_size=101; moe_ffn_hidden_size=64",
        "moe_layer_freq=2",
        "moe_layer_freq=([0]*3+[1]*5)",
        "moe_router_num_groups=4; moe_router_group_topk=2",
        "moe_router_topk=1; moe_router_pre_softmax=true",
        "moe_router_topk=1; moe_router_score_function=sigmoid",
        "moe_router_topk=1; moe_router_load_balancing_type=sinkhorn",
        "moe_router_load_balancing_type=sinkhorn; moe_input_jitter_eps=0.1; moe_z_loss_coeff=0.01",
        "moe_router_num_groups=4; moe_router_group_topk=2; moe_router_topk=3",
        "moe_router_load_balancing_type=aux_loss none; moe_aux_loss_coeff=0.1 0",
        "moe_router_force_load_balancing=true",
        "moe_aux_loss_coeff=0.01",
        "moe_router_load_balancing_type=none",
        "moe_router_load_balancing_type=aux_loss seq_aux_loss; moe_aux_loss_coeff=0.1 0.2",
        "moe_shared_expert_intermediate_size=32",
        "moe_router_load_balancing_type=global_aux_loss; moe_aux_loss_coeff=0.01",
        "moe_input_jitter_eps=0.01",
        "moe_expert_capacity_factor=1.5; moe_token_drop_policy=position",
        "moe_expert_capacity_factor=4; moe_pad_expert_input_to_capacity=true",
        ("moe_shared_expert_intermediate_size=32; moe_shared_expert_overlap=true; "
         "moe_token_dispatcher_type=alltoall"),
        "moe_router_topk_scaling_factor=2.5; moe_z_loss_coeff=0.001; moe_token_dispatcher_type=alltoall"}) {
    EXPECT_EQ(report(problems_of(example(std::string("experts-layers: ") + settings).broken())), "")
        << settings;
  }
  EXPECT_THAT(
      ids_of(
          example("experts-layers: ffn_hidden_size=101; moe_ffn_hidden_size=64; moe_layer_freq=2").broken()),
      ElementsAre("ffn-tensor"))
      << "every second layer is dense";
}

TEST(MoeRules, ExpertParallelSizeIsNoFactorOfTheWorldSize) {
  const std::string four =
      "experts-world: world_size=4; expert_tensor_parallel_size=1; "
      "expert_model_parallel_size=2; global_batch_size=2";
  EXPECT_EQ(report(problems_of(example(four).broken())), "")
      << "2 x 2 ranks, which also form the expert-parallel groups of 2";
  const std::vector<Problem> problems = problems_of(
      example(
          "experts-world: expert_tensor_parallel_size=1; expert_model_parallel_size=2; global_batch_size=2")
          .broken());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(
      problems[0].text,
      "--global-batch-size must be a multiple of micro-batch size x data-parallel size; got 2 for 2 x 2 "
      "data-parallel ranks; set --global-batch-size 4")
      << "data-parallel size 8 / (2 x 2), not divided by the expert-parallel size";
}

TEST(MoeRules, ReportAMistakeOnce) {
  EXPECT_THAT(ids_of(example("experts-world: world_size=6").broken()), ElementsAre("world"))
      << "the expert product equals tensor x context";
  EXPECT_THAT(ids_of(example("capacity: num_experts=0; moe_shared_expert_gate=true; moe_ffn_hidden_size=32; "
                             "moe_router_enable_expert_bias=true; moe_expert_capacity_factor=0")
                         .broken()),
              ElementsAre("experts-width"));
  EXPECT_THAT(
      ids_of(example("capacity: moe_shared_expert_overlap=true; moe_shared_expert_intermediate_size=32; "
                     "moe_pad_expert_input_to_capacity=true")
                 .broken()),
      ElementsAre("experts-shared-overlap", "capacity-needed"));
}

TEST(MoeRules, WithoutExpertsReportOnlyThat) {
  for (const RuleExample& e : rule_examples()) {
    if (e.valid.model.moe.num_experts == 0) continue;
    config::Run run = e.broken();
    run.model.moe.num_experts = 0;
    run.model.ffn_hidden_size = 256;
    EXPECT_THAT(ids_of(run),
                ::testing::Each(::testing::AnyOf("experts-width", "experts-without", "experts-world",
                                                 "experts-rank-order", "upcycling-routed", "latent-experts")))
        << words(e);
  }
  EXPECT_THAT(ids_of(example("experts-layers: num_layers=0; moe_layer_freq=[1]").broken()),
              ElementsAre("num-layers"));
}

TEST(MoeRules, AValidRunHasAMesh) {
  for (const int tp : {1, 2, 4})
    for (const int ep : {1, 2, 3, 4, 8})
      for (const int etp : {0, 1, 2, 4})
        for (const int pp : {1, 2})
          for (const bool mapping : {false, true})
            for (const int world : {8, 12, 16, 24}) {
              config::Run r = example_of("experts-layers").valid;
              r.parallel = {.world_size = world,
                            .tensor_model_parallel_size = tp,
                            .pipeline_model_parallel_size = pp,
                            .expert_model_parallel_size = ep,
                            .expert_tensor_parallel_size = etp,
                            .sequence_parallel = true,
                            .use_tp_pp_dp_mapping = mapping};
              const std::vector<std::string> ids = ids_of(r);
              const bool rejected = std::ranges::any_of(ids, [](const std::string& id) {
                return id == "world" || id == "experts-world" || id == "experts-rank-order";
              });
              bool made = true;
              try {
                const layout::Mesh mesh(r.parallel);
              } catch (const ConfigError&) {
                made = false;
              }
              EXPECT_EQ(made, !rejected) << fmt::format("tp {} ep {} etp {} pp {} mapping {} world {}", tp,
                                                        ep, etp, pp, mapping, world);
            }
}

TEST(MoeRules, DoNotCrashOnZeroSizes) {
  using Break = void (*)(config::Run&);
  for (const Break breaks : {Break([](config::Run& r) { r.parallel.tensor_model_parallel_size = 0; }),
                             Break([](config::Run& r) { r.parallel.expert_model_parallel_size = 0; }),
                             Break([](config::Run& r) { r.parallel.pipeline_model_parallel_size = 0; }),
                             Break([](config::Run& r) { r.parallel.context_parallel_size = 0; }),
                             Break([](config::Run& r) { r.parallel.world_size = 0; }),
                             Break([](config::Run& r) { r.model.num_layers = -1; }),
                             Break([](config::Run& r) { r.model.moe.ffn_hidden_size = -3; }),
                             Break([](config::Run& r) { r.model.moe.router_num_groups = -1; }),
                             Break([](config::Run& r) { r.model.moe.router_topk = 0; })}) {
    config::Run r = example("experts-shared: moe_shared_expert_intermediate_size=32").broken();
    breaks(r);
    EXPECT_FALSE(check(r).empty());
  }
}

}  // namespace
}  // namespace colonnade::rules
