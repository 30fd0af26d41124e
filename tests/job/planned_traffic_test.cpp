// The plan's communication volume against the collectives and messages that ranks call.
#include "colonnade/config/stacks.h"
#include "colonnade/cost/communication.h"

#include <gmock/gmock.h>

#include "job/planned.h"

namespace colonnade::job {
namespace {

using test::Planned;

struct Exchange {
  Planned layout;
  double heads, ring;  ///< ranks of the all-to-all, and of the ring
};

const Exchange kExchanges[] = {
    {{"Cp2", 2, "--context-parallel-size 2 --micro-batch-size 2 --global-batch-size 4"}, 1, 2},
    {{"Cp4Gather", 4, "--context-parallel-size 4 --cp-comm-type all_gather --micro-batch-size 1"}, 1, 4},
    {{"Cp4A2a", 4, "--context-parallel-size 4 --cp-comm-type a2a --micro-batch-size 1"}, 4, 1},
    {{"Cp4TwoLevels", 4,
      "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 "
      "--micro-batch-size 1"},
     2,
     2},
    {{"Cp2Pp2", 4,
      "--context-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 4"},
     1,
     2},
};

/// A rank's calls in a step without the optimizer, and in the parameter gather after it.
struct Traffic {
  comm::CallLog::Table table;
  std::size_t stage = 0;  ///< its pipeline coordinate
};
Traffic traffic_of(const config::Run& run, int rank) {
  const auto log = std::make_shared<comm::CallLog>();
  Job job(run, comm::Communicators(layout::Mesh(run.parallel), rank, comm::null_factory(log)));
  test::forward_backward(job);
  job.buffers().gather_params();
  return {log->table(), static_cast<std::size_t>(job.ranks.coord(layout::Axis::kPp))};
}

/// Bytes that leave a rank: of a collective over k ranks (k - 1) / k, of a message all.
double sent(const comm::CallLog::Table& traffic, const Exchange& exchange, const std::string& begin = "cp") {
  double bytes = 0;
  for (const auto& [key, entry] : traffic) {
    const auto& [axes, operation] = key;
    if (!axes.starts_with(begin)) continue;
    const double ranks = operation == "all_to_all" ? exchange.heads : exchange.ring;
    const auto moved = static_cast<double>(entry.bytes);
    if (operation == "send") bytes += moved;
    if (operation != "send" && operation != "recv") bytes += moved * (ranks - 1) / ranks;
  }
  return bytes;
}

TEST(PlannedTraffic, ContextParallelIsExact) {
  for (const Exchange& exchange : kExchanges)
    for (const std::string& model :
         {test::odd(""), test::odd("--group-query-attention --num-query-groups 2 "),
          test::odd("--attn-logit-softcapping 30 --attention-dropout 0.1 --recompute-activations "),
          test::odd("--mtp-num-layers 2 --position-embedding-type rope --recompute-activations "),
          test::odd("--mtp-num-layers 1 --position-embedding-type rope --recompute-granularity full "
                    "--recompute-method uniform --recompute-num-layers 1 "),
          test::latent("--v-head-dim 30 "),
          test::latent(
              "--mtp-num-layers 1 --recompute-granularity selective --recompute-modules mla_up_proj "),
          test::latent("--recompute-granularity selective --recompute-modules mla_up_proj core_attn ")}) {
      SCOPED_TRACE(fmt::format("{} {}", exchange.layout.name, model));
      const config::Run run = test::planned_run(exchange.layout, model, "meta");
      const auto plan = cost::plan_traffic(run);
      for (int rank = 0; rank < run.parallel.world_size; ++rank) {
        const auto [traffic, stage] = traffic_of(run, rank);
        EXPECT_GT(plan[stage].context, 0);
        EXPECT_DOUBLE_EQ(sent(traffic, exchange), plan[stage].context) << "rank " << rank;
      }
    }
}

/// Bytes that leave a rank in collectives of `ranks` ranks over `axes`: all but its own share.
double sent_over(const comm::CallLog::Table& traffic, const std::string& axes, double ranks) {
  double bytes = 0;
  for (const auto& [key, entry] : traffic)
    if (key.first == axes) bytes += static_cast<double>(entry.bytes) * (ranks - 1) / ranks;
  return bytes;
}

TEST(PlannedTraffic, ExpertsIsExact) {
  const Planned layouts[] = {
      {"Ep4", 4, "--expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall"},
      {"Ep4Gather", 4, "--expert-model-parallel-size 4"},
      {"Tp2SpEp2Etp2", 4,
       "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
       "--moe-token-dispatcher-type alltoall"},
  };
  for (const Planned& layout : layouts)
    for (const char* width : {"", "--moe-latent-size 28 "}) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, width));
      const config::Run run = test::planned_run(
          layout,
          test::odd(std::string("--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --swiglu "
                                "--disable-bias-linear --micro-batch-size 2 ") +
                    width),
          "meta");
      const auto [traffic, stage] = traffic_of(run, 0);
      const auto plan = cost::plan_traffic(run)[stage];
      EXPECT_GT(plan.dispatch, 0);
      double experts = 0;
      for (const char* axes : {"etp-ep", "ep-etp", "ep"}) experts += sent_over(traffic, axes, 4);
      EXPECT_DOUBLE_EQ(experts, plan.dispatch);
    }
}

/// Bytes that leave a rank in expert all-to-alls: all rows but those for itself.
double sent_in_all_to_alls(const DryRun& seen) {
  double bytes = 0;
  for (const comm::LoggedCall& call : seen.calls) {
    if (call.operation != "all_to_all") continue;
    const auto me = static_cast<std::size_t>(std::ranges::find(*call.ranks, seen.rank) - call.ranks->begin());
    double all = 1;
    for (const std::int64_t size : call.shape) all *= static_cast<double>(size);
    all *= static_cast<double>(c10::elementSize(call.dtype));
    const double share = call.rows.sent.empty() ? 1.0 / static_cast<double>(call.ranks->size())
                                                : static_cast<double>(call.rows.sent[me]) /
                                                      static_cast<double>(call.shape.at(0));
    bytes += all * (1 - share);
  }
  return bytes;
}

TEST(PlannedTraffic, FullestExpertRankIsExact) {
  for (const Planned& layout :
       {Planned{"Ep4", 4, "--expert-model-parallel-size 4"},
        Planned{"Tp2SpEp2Etp2", 4,
                "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2"}})
    for (const double imbalance : {1.0, 1.5, 2.0}) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, imbalance));
      config::Run run = test::planned_run(
          layout,
          test::odd("--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --micro-batch-size 2 "
                    "--moe-token-dispatcher-type alltoall "),
          "cpu");
      run.model.moe.assumed_imbalance = imbalance;
      EXPECT_DOUBLE_EQ(sent_in_all_to_alls(dry_run(run, 0)), cost::plan_traffic(run)[0].dispatch);
    }
}

/// The last message holds the hidden states of all predicted tokens.
TEST(PlannedTraffic, MtpInAStageBeforeTheHeadIsExact) {
  for (const char* layout : {"Ett|tt|mm|L", "Ett|ttmm||L"}) {
    const std::string flags = fmt::format(
        "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout {} --micro-batch-size 1 "
        "--global-batch-size 6",
        layout);
    const config::Run run = test::planned_run(
        {"Pp4", 4, flags.c_str()}, test::odd("--mtp-num-layers 2 --position-embedding-type rope "), "meta");
    const auto plan = cost::plan_traffic(run);
    for (int rank = 0; rank < run.parallel.world_size; ++rank) {
      const auto [traffic, stage] = traffic_of(run, rank);
      double bytes = 0;
      for (const auto& [key, entry] : traffic)
        if (key == std::pair<std::string, std::string>("pp", "send"))
          bytes += static_cast<double>(entry.bytes);
      EXPECT_GT(bytes, 0);
      EXPECT_DOUBLE_EQ(bytes, plan[stage].pipeline) << layout << " rank " << rank;
    }
  }
}

/// All-gathers of parameters and reduce-scatters of gradients, block by block.
TEST(PlannedTraffic, ShardedUnitsWithTiedEmbeddingsIsExact) {
  for (const char* layout : {"--pipeline-model-parallel-layout Etttt|mm|L",
                             "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|ttmm||L",
                             "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
                             "--pipeline-model-parallel-layout Ett|t|tmm|L"})
    for (const char* untied : {"", "--untie-embeddings-and-output-weights "}) {
      const std::string flags =
          fmt::format("--use-megatron-fsdp --micro-batch-size 1 --global-batch-size 16 {}", layout);
      const int world = flags.find("size 2") == std::string::npos ? 2 : 4;
      const config::Run run = test::planned_run(
          {"Dp2", world, flags.c_str()},
          test::odd(fmt::format("--mtp-num-layers 2 --position-embedding-type rope {}", untied)), "meta");
      const auto plan = cost::plan_traffic(run);
      for (int rank = 0; rank < run.parallel.world_size; ++rank) {
        const auto [traffic, stage] = traffic_of(run, rank);
        EXPECT_DOUBLE_EQ(sent_over(traffic, "dp-cp", 2), plan[stage].data) << flags << untied << rank;
      }
    }
}

TEST(PlannedTraffic, ShardedUnitsIsExact) {
  for (const char* schedule : {"1f1b", "1f1b --delay-wgrad-compute", "zb-h1", "zb-v", "dualpipe-v"})
    for (const char* model :
         {"", "--untie-embeddings-and-output-weights ", "--mtp-num-layers 1 --position-embedding-type rope ",
          "--mtp-num-layers 2 --position-embedding-type rope --untie-embeddings-and-output-weights "}) {
      SCOPED_TRACE(fmt::format("{} {}", schedule, model));
      const std::string flags = fmt::format(
          "--use-megatron-fsdp --pipeline-model-parallel-size 2 --pipeline-schedule {} --micro-batch-size 1 "
          "--global-batch-size 16",
          schedule);
      const config::Run run = test::planned_run({"Pp2Dp2", 4, flags.c_str()}, test::odd(model), "meta");
      const auto plan = cost::plan_traffic(run);
      for (int rank = 0; rank < run.parallel.world_size; ++rank) {
        const auto [traffic, stage] = traffic_of(run, rank);
        EXPECT_DOUBLE_EQ(sent_over(traffic, "dp-cp", 2), plan[stage].data) << "rank " << rank;
      }
    }
}

/// Bytes that leave a rank by ring algorithms over groups of `ranks` whose axes have this prefix and suffix.
double sent_in_rings(const comm::CallLog::Table& traffic, const std::string& begin, const std::string& end,
                     double ranks) {
  double bytes = 0;
  for (const auto& [key, entry] : traffic) {
    const auto& [axes, operation] = key;
    if (axes.starts_with(begin) && axes.ends_with(end))
      bytes += static_cast<double>(entry.bytes) * (ranks - 1) / ranks * (operation == "all_reduce" ? 2 : 1);
  }
  return bytes;
}

struct DataRanks {
  Planned layout;
  double inner, outer, expert_inner;
};

const DataRanks kDataRanks[] = {
    {{"Dp4", 4, ""}, 4, 1, 1},
    {{"Dp4InBf16", 4, "--bf16 --grad-reduce-in-bf16 "}, 4, 1, 1},
    {{"Dp4Distributed", 4, "--use-distributed-optimizer "}, 4, 1, 1},
    {{"Dp8TwoLevels", 8, "--use-distributed-optimizer --num-distributed-optimizer-instances 2 "}, 4, 2, 1},
    {{"Dp8TwoLevelsSharedInBf16", 8,
      "--use-distributed-optimizer --num-distributed-optimizer-instances 4 --outer-dp-sharding-strategy optim "
      "--bf16 --grad-reduce-in-bf16 "},
     2,
     4,
     1},
    {{"Dp4ShardedInBf16", 4, "--use-megatron-fsdp --bf16 --grad-reduce-in-bf16 "}, 4, 1, 1},
    {{"Dp8ShardedTwoLevels", 8,
      "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim "},
     4,
     2,
     1},
    {{"Ep2Dp8TwoLevels", 8,
      "--use-distributed-optimizer --num-distributed-optimizer-instances 2 --expert-model-parallel-size 2 "
      "--num-experts 4 --moe-layer-freq 2 --moe-ffn-hidden-size 40 "},
     4,
     2,
     2},
};

TEST(PlannedTraffic, DataParallelIsExact) {
  for (const DataRanks& one : kDataRanks) {
    SCOPED_TRACE(one.layout.name);
    const config::Run run = test::planned_run(
        one.layout,
        test::odd("--untie-embeddings-and-output-weights --disable-bias-linear --micro-batch-size 1 "
                  "--global-batch-size 16 "),
        "meta");
    const auto [traffic, stage] = traffic_of(run, 0);
    const auto plan = cost::plan_traffic(run)[stage];
    const char* inner = one.outer > 1 ? ".inner" : "";
    EXPECT_DOUBLE_EQ(sent_in_rings(traffic, "dp-cp", inner, one.inner) +
                         sent_in_rings(traffic, "edp", inner, one.expert_inner),
                     plan.data);
    EXPECT_GT(plan.data, 0);
    EXPECT_EQ(plan.outer_data > 0, one.outer > 1);
    if (one.outer > 1) {
      EXPECT_DOUBLE_EQ(sent_in_rings(traffic, "dp-cp", ".outer", one.outer) +
                           sent_in_rings(traffic, "edp", ".outer", one.outer),
                       plan.outer_data);
    }
  }
}

// Samples over groups of two data and context ranks, out of four: a sequence's exchanges stay within its
// group, and gradients are reduced over all ranks, whatever the groups.
TEST(PlannedTraffic, HybridContextParallelIsExact) {
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    for (const char* more : {"", "--use-distributed-optimizer "}) {
      SCOPED_TRACE(fmt::format("{} {}", kind, more));
      const std::string flags = fmt::format(
          "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 20 --cp-comm-type {} --reset-attention-mask "
          "--reset-position-ids --calculate-per-token-loss --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 4 {}",
          kind, more);
      const config::Run run = test::planned_run({"Hybrid", 4, flags.c_str()}, test::odd(""), "meta");
      const auto [traffic, stage] = traffic_of(run, 0);
      const auto plan = cost::plan_traffic(run)[stage];
      const bool heads = std::string(kind) == "a2a";
      EXPECT_DOUBLE_EQ(sent(traffic, {{}, heads ? 2.0 : 1.0, heads ? 1.0 : 2.0}, "dp-cp.2.inner"),
                       plan.context);
      comm::CallLog::Table sums = traffic;
      std::erase_if(sums, [](const auto& one) { return one.first.first != "dp-cp"; });
      EXPECT_DOUBLE_EQ(sent_in_rings(sums, "dp-cp", "", 4), plan.data);
      EXPECT_GT(plan.data, 0);
      EXPECT_GT(plan.context, 0);
      for (const auto& [key, entry] : traffic)
        EXPECT_THAT(key.first, testing::AnyOf("dp-cp", "dp-cp.2.inner", "world")) << "not in the plan";
    }
}

TEST(PlannedTraffic, HybridContextParallelWithExpertsAndShardedUnitsIsExact) {
  const Planned layout{"HybridEp2", 4,
                       "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 20 --cp-comm-type all_gather "
                       "--reset-attention-mask --reset-position-ids --calculate-per-token-loss "
                       "--micro-batch-size 1 --global-batch-size 4 --use-megatron-fsdp "
                       "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall "};
  const config::Run run = test::planned_run(
      layout, test::odd("--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 "), "meta");
  const auto [traffic, stage] = traffic_of(run, 0);
  const auto plan = cost::plan_traffic(run)[stage];
  EXPECT_GT(plan.dispatch, 0);
  double experts = 0;
  for (const char* axes : {"etp-ep", "ep-etp", "ep"}) experts += sent_over(traffic, axes, 2);
  EXPECT_DOUBLE_EQ(experts, plan.dispatch);
  EXPECT_DOUBLE_EQ(sent_over(traffic, "dp-cp", 4) + sent_over(traffic, "edp", 2), plan.data);
  EXPECT_GT(sent(traffic, {{}, 1, 2}, "dp-cp.2.inner"), 0);
}

/// Embedding tables replicated over several stages, here over two each.
TEST(PlannedTraffic, SharedTablesOfStagesIsExact) {
  const Planned layouts[] = {
      {"Pp2Dp2", 4, "--pipeline-model-parallel-size 2 "},
      {"Pp4Tp2", 8, "--pipeline-model-parallel-size 4 --tensor-model-parallel-size 2 "},
      {"Pp4Dp2Distributed", 8, "--pipeline-model-parallel-size 4 --use-distributed-optimizer "},
      {"Pp2Dp2Sharded", 4, "--pipeline-model-parallel-size 2 --use-megatron-fsdp "},
      {"Pp2Dp4TwoLevels", 8,
       "--pipeline-model-parallel-size 2 --use-distributed-optimizer --num-distributed-optimizer-instances 2 "
       "--outer-dp-sharding-strategy optim "},
      {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v "},
  };
  const std::string data = "--micro-batch-size 1 --global-batch-size 16 ";
  const std::string t5 =
      "t5 --encoder-num-layers 4 --decoder-seq-length 24 --vocab-extra-ids 5 --position-embedding-type relative ";
  for (const Planned& layout : layouts)
    for (const std::string& model : {test::odd(data), test::odd(t5 + data)}) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, model));
      const config::Run run = test::planned_run(layout, model, "meta");
      const auto plan = cost::plan_traffic(run);
      double most = 0;
      for (int rank = 0; rank < run.parallel.world_size; ++rank) {
        const auto [traffic, stage] = traffic_of(run, rank);
        double sent = 0;
        for (const char* held : {"embedding", "encoder", "decoder"})
          sent += sent_in_rings(traffic, held, held, 2);
        EXPECT_DOUBLE_EQ(sent, plan[stage].shared_embeddings) << "rank " << rank;
        most = std::max(most, sent);
      }
      const bool in_one_place =
          std::string(layout.name) == "Pp2ZbV" && !config::has_several_stacks(run.model);
      EXPECT_EQ(most > 0, !in_one_place);
    }
}

/// Tensor ranks also all-reduce loss statistics and gradients of norms, which the plan leaves out.
void expect_traffic(const config::Run& run) {
  const auto plan = cost::plan_traffic(run);
  const layout::Mesh mesh(run.parallel);
  for (int rank = 0; rank < run.parallel.world_size; ++rank) {
    const auto [traffic, stage] = traffic_of(run, rank);
    const cost::StageTraffic& expected = plan[stage];
    const int tp = mesh.size(layout::Axis::kTp),
              data = mesh.size(layout::data_axes(layout::ParamGroup::kDense));
    if (tp > 1) {
      EXPECT_NEAR(sent_in_rings(traffic, "tp", "tp", tp) / expected.tensor, 1, 0.01) << "rank " << rank;
    }
    if (data > 1) {
      const std::string axes = layout::name(layout::data_axes(layout::ParamGroup::kDense));
      EXPECT_NEAR(sent_in_rings(traffic, axes, "", data) / expected.data, 1, 0.001) << "rank " << rank;
    }
  }
}

TEST(PlannedTraffic, TensorParallelWithRecomputation) {
  for (const char* layout :
       {"--tensor-model-parallel-size 2 ", "--tensor-model-parallel-size 2 --sequence-parallel "})
    for (const char* again :
         {"", "--recompute-activations ",
          "--recompute-granularity selective --recompute-modules layernorm mlp ",
          "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ",
          "--recompute-granularity full --recompute-method block --recompute-num-layers 3 "}) {
      const std::string flags = std::string(layout) + again + "--micro-batch-size 1 --global-batch-size 2";
      SCOPED_TRACE(flags);
      expect_traffic(test::planned_run({"", 2, flags.c_str()}, test::llama(""), "meta"));
    }
}

TEST(PlannedTraffic, ShardedDataParallel) {
  for (const char* parts :
       {"", "--use-distributed-optimizer ",
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads ", "--use-megatron-fsdp ",
        "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather ",
        "--use-megatron-fsdp --torch-fsdp2-no-reshard-after-forward ",
        "--deterministic-mode --use-distributed-optimizer "})
    for (const char* pipeline : {"", "--pipeline-model-parallel-size 2 "}) {
      const std::string flags = std::string(parts) + pipeline + "--micro-batch-size 1 --global-batch-size 8";
      SCOPED_TRACE(flags);
      expect_traffic(test::planned_run({"", 4, flags.c_str()}, test::llama(""), "meta"));
    }
}

}  // namespace
}  // namespace colonnade::job
