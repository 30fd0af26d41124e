// Shared parameters that stages hold in different order, and on different stages.
#include "colonnade/data_parallel/tied_embeddings.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "colonnade/comm/thread_ranks.h"

namespace colonnade::data_parallel {
namespace {

using layout::HeldBy;

// Ranks 0 and 2 hold the words, ranks 1 and 2 the decoder's table; rank 2 lists them in the other order.
TEST(TiedEmbeddings, EachKindIsSummedOverItsStages) {
  config::Parallel parallel;
  parallel.world_size = parallel.pipeline_model_parallel_size = 3;
  comm::run_ranks(parallel, [](comm::Communicators& ranks) {
    const int rank = ranks.rank();
    const auto values = [&](double base) { return at::full({4}, base + rank, at::kDouble); };
    std::map<HeldBy, comm::Group> stages;
    std::vector<TiedGradient> gradients;
    if (rank != 1) {
      stages.emplace(HeldBy::kTiedEmbeddings, ranks.pipeline_group({0, 2}, "words"));
      gradients.push_back({HeldBy::kTiedEmbeddings, values(10), "words"});
    }
    if (rank != 0) {
      stages.emplace(HeldBy::kDecoder, ranks.pipeline_group({1, 2}, "decoder"));
      gradients.push_back({HeldBy::kDecoder, values(100), "table"});
    }
    std::ranges::reverse(gradients);
    all_reduce_over_stages(stages, gradients);
    for (const TiedGradient& gradient : gradients)
      EXPECT_TRUE(at::equal(gradient.values, at::full({4}, gradient.name == "words" ? 22 : 203, at::kDouble)))
          << gradient.name << " on rank " << rank;
  });
}

// A rank that holds a parameter alone has no group for it.
TEST(TiedEmbeddings, GradientsOfOneStageStay) {
  const at::Tensor values = at::ones({3});
  all_reduce_over_stages({}, {{HeldBy::kTiedEmbeddings, values, "words"}});
  EXPECT_TRUE(at::equal(values, at::ones({3})));
}

}  // namespace
}  // namespace colonnade::data_parallel
