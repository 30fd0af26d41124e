// Threads as ranks: meshes, failed and finished ranks, timeouts, and the semantics of Work.
#include "colonnade/comm/thread_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"

namespace colonnade::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// The message of the error that `run` throws.
template <typename E, typename Run>
std::string message_of(const Run& run) {
  try {
    run();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

config::Parallel layout(int tensor, int pipeline, int data) {
  config::Parallel parallel;
  parallel.world_size = tensor * pipeline * data;
  parallel.tensor_model_parallel_size = tensor;
  parallel.pipeline_model_parallel_size = pipeline;
  return parallel;
}

TEST(ThreadRanks, GroupsFollowTheMesh) {
  std::atomic<int> bodies = 0;
  run_ranks(layout(2, 2, 2), [&](Communicators& ranks) {
    ++bodies;
    for (const layout::AxisSet axes : {layout::AxisSet{layout::Axis::kTp}, layout::AxisSet{layout::Axis::kPp},
                                       layout::AxisSet{layout::Axis::kDp, layout::Axis::kCp}}) {
      const Group group = ranks.group(axes);
      const std::vector<int> members = ranks.mesh().peers(ranks.rank(), axes);
      EXPECT_EQ(group.ranks(), members);
      EXPECT_EQ(members[static_cast<std::size_t>(group.rank())], ranks.rank());
      at::Tensor bits = at::full({1}, std::int64_t{1} << ranks.rank());
      group.all_reduce(bits, "test").wait();
      std::int64_t expected = 0;
      for (const int member : members) expected |= std::int64_t{1} << member;
      EXPECT_EQ(bits.item<std::int64_t>(), expected);
    }
    EXPECT_EQ(ranks.world().size(), 8);
    EXPECT_EQ(ranks.pipeline_group({0, 1}, "ends").size(), 2);
    EXPECT_EQ(at::get_num_threads(), 1);
  });
  EXPECT_EQ(bodies, 8);
}

TEST(ThreadRanks, StagesSelectsPipelineRanks) {
  run_ranks(layout(1, 4, 1), [](Communicators& ranks) {
    const Group ends = ranks.pipeline_group({0, 3}, "ends"),
                middle = ranks.pipeline_group({0, 1, 2}, "front");
    const bool edge = ranks.rank() == 0 || ranks.rank() == 3;
    EXPECT_EQ(ends.size(), edge ? 2 : 1);
    if (edge) {
      EXPECT_EQ(ends.ranks(), (std::vector<int>{0, 3}));
    }
    EXPECT_EQ(middle.size(), ranks.rank() < 3 ? 3 : 1);
  });
}

TEST(ThreadRanks, LevelsSplitAGroupIntoInnerAndOuterGroups) {
  config::Parallel parallel;
  parallel.world_size = 16;
  parallel.tensor_model_parallel_size = 2;
  parallel.context_parallel_size = 8;
  run_ranks(parallel, [](Communicators& ranks) {
    const auto [run, outer] = ranks.inner_outer_groups({layout::Axis::kCp}, 4);
    if (ranks.rank() == 3) {
      EXPECT_EQ(run.ranks(), (std::vector<int>{1, 3, 5, 7}));
      EXPECT_EQ(outer.ranks(), (std::vector<int>{3, 11}));
    }
    EXPECT_EQ(run.rank(), ranks.coord(layout::Axis::kCp) % 4);
    EXPECT_EQ(outer.rank(), ranks.coord(layout::Axis::kCp) / 4);
    EXPECT_THROW((void)ranks.inner_outer_groups({layout::Axis::kCp}, 3), Error);
    const auto [all, alone] = ranks.inner_outer_groups({layout::Axis::kCp}, 8);
    EXPECT_EQ(all.axes(), "cp");
    EXPECT_EQ(alone.size(), 1);
    const auto [one, others] = ranks.inner_outer_groups({layout::Axis::kCp}, 1);
    EXPECT_EQ(one.size(), 1);
    EXPECT_EQ(others.ranks(), all.ranks());
  });
}

TEST(ThreadRanks, RunsAreNested) {
  config::Parallel parallel;
  parallel.world_size = 16;
  parallel.tensor_model_parallel_size = parallel.context_parallel_size = 2;
  run_ranks(parallel, [](Communicators& ranks) {
    const layout::AxisSet axes{layout::Axis::kCp, layout::Axis::kDp};
    const int index = ranks.mesh().index(ranks.rank(), axes);
    for (const int size : {1, 2, 4, 8}) EXPECT_EQ(ranks.inner_group(axes, size).rank(), index % size);
    EXPECT_EQ(ranks.inner_group(axes, 8).ranks(), ranks.group(axes).ranks());
    if (ranks.rank() == 13) {
      EXPECT_EQ(ranks.inner_group(axes, 2).ranks(), (std::vector<int>{13, 15}));
      EXPECT_EQ(ranks.inner_group(axes, 4).ranks(), (std::vector<int>{9, 11, 13, 15}));
    }
  });
}

TEST(ThreadRanks, RestoresTheNumberOfThreads) {
  const int before = at::get_num_threads();
  run_ranks(2, [](Communicators&) {});
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(ThreadRanks, TwoMeshesInOneProcessUseSeparateGroups) {
  run_ranks(4, [](Communicators& outer) {
    Communicators inner(layout::Mesh(layout(2, 1, 2)), outer.rank(), outer.factory());
    Communicators same(outer.mesh(), outer.rank(), outer.factory());
    at::Tensor x = at::ones({1}, at::kLong);
    outer.world().all_reduce(x, "test").wait();
    same.world().all_reduce(x, "test").wait();
    inner.group({layout::Axis::kDp}).all_reduce(x, "test").wait();
    EXPECT_EQ(x.item<std::int64_t>(), 4 * 4 * 2);
  });
}

TEST(ThreadRanks, AnErrorInOneRankStopsTheOthersAndIsRethrown) {
  std::atomic<int> ended_by_peer = 0;
  const auto start = std::chrono::steady_clock::now();
  const std::string message = message_of<DataError>([&] {
    run_ranks(4, [&](Communicators& ranks) {
      if (ranks.rank() == 2) throw DataError("shard 7 is torn");
      at::Tensor x = at::ones({3});
      try {
        ranks.world().all_reduce(x, "step 5 / dp.grad.bucket 3").wait();
      } catch (const CommError& error) {
        ++ended_by_peer;
        EXPECT_THAT(error.what(), HasSubstr("all_reduce \"step 5 / dp.grad.bucket 3\""));
        EXPECT_THAT(error.what(), HasSubstr("rank 2 failed: shard 7 is torn"));
        EXPECT_THAT(error.what(), HasSubstr("ranks 0, 1, 2, 3"));
        throw;
      }
    });
  });
  EXPECT_EQ(message, "shard 7 is torn");
  EXPECT_EQ(ended_by_peer, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // time-out 60 s
}

TEST(ThreadRanks, ARankThatFinishesEarlyIsNamed) {
  for (const bool by_recv : {false, true}) {
    const std::string message = message_of<CommError>([&] {
      run_ranks(2, [&](Communicators& ranks) {
        if (ranks.rank() == 1) return;
        at::Tensor x = at::ones({3});
        if (by_recv) {
          ranks.world().recv(x, 1, 0, "test").wait();
        } else {
          ranks.world().all_reduce(x, "test").wait();
        }
      });
    });
    EXPECT_THAT(message, HasSubstr("rank 1 has ended"));
  }
}

TEST(ThreadRanks, AMessageSentBeforeTheSenderFinishesArrives) {
  run_ranks(2, [](Communicators& ranks) {
    at::Tensor x = at::full({3}, ranks.rank() == 0 ? 5.0 : 0.0);
    if (ranks.rank() == 0) {
      ranks.world().send(x, 1, 9, "test").wait();
      x.zero_();  // messages are copies
      return;
    }
    std::this_thread::sleep_for(milliseconds(50));
    ranks.world().recv(x, 0, 9, "test").wait();
    EXPECT_EQ(x[2].item<double>(), 5.0);
  });
}

TEST(ThreadRanks, ATimeoutNamesTheMissingRankAndItsLastCollective) {
  std::atomic<int> gave_up = 0;  // rank 3 arrives after the others have given up
  const std::string message = message_of<CommError>([&] {
    run_ranks(
        layout(2, 1, 2),
        [&](Communicators& ranks) {
          at::Tensor x = at::ones({3});
          ranks.group({layout::Axis::kTp}).all_reduce(x, "layer 4 / mlp / sum").wait();
          while (ranks.rank() == 3 && gave_up < 3) std::this_thread::sleep_for(milliseconds(5));
          try {
            ranks.world().barrier("end of step");
          } catch (const CommError&) {
            ++gave_up;
            throw;
          }
        },
        milliseconds(3000));  // applies to the preceding all-reduce too
  });
  EXPECT_EQ(gave_up, 4);
  EXPECT_THAT(message,
              HasSubstr("rank 3 (last started \"layer 4 / mlp / sum\" on tp) did not arrive within 3000 ms"));
}

TEST(ThreadRanks, MismatchedCollectivesAreAnErrorThatNamesBoth) {
  const std::string message = message_of<Error>([] {
    run_ranks(2, [](Communicators& ranks) {
      at::Tensor x = at::ones({ranks.rank() == 0 ? 3 : 4});
      ranks.world().all_reduce(x, ranks.rank() == 0 ? "first" : "second").wait();
    });
  });
  EXPECT_THAT(message, HasSubstr("\"first\" of 3 Float elements"));
  EXPECT_THAT(message, HasSubstr("\"second\" of 4 Float elements"));
}

TEST(ThreadRanks, InvalidArgumentsAreReportedWithTheirValues) {
  run_ranks(2, [](Communicators& ranks) {
    const Group group = ranks.world();
    const at::Tensor x = at::zeros({4, 3});
    EXPECT_THAT(message_of<Error>([&] { group.all_reduce(x.t(), "transposed"); }), HasSubstr("[1, 3]"));
    EXPECT_THAT(message_of<Error>([&] {
                  group.all_gather(at::zeros({4, 6}), x, "wide");
                }),
                HasSubstr("[4, 6]"));
    EXPECT_THAT(message_of<Error>([&] {
                  group.all_gather(at::zeros({8, 3}, at::kDouble), x, "type");
                }),
                HasSubstr("Double"));
    EXPECT_THAT(message_of<Error>([&] { group.reduce_scatter(x, x, "same"); }), HasSubstr("2 shards"));
    EXPECT_THAT(message_of<Error>([&] { group.all_to_all(at::zeros({3}), at::zeros({3}), "odd"); }),
                HasSubstr("divisible"));
    EXPECT_THAT(message_of<Error>([&] {
                  group.all_to_all(at::zeros({3}), at::zeros({3}), {{1, 1}, {1, 2}}, "few");
                }),
                HasSubstr("received rows must be one count for each of 2 members and add up"));
    EXPECT_THAT(message_of<Error>([&] {
                  group.all_to_all(at::zeros({2}), at::zeros({4}), {{1, 1}, {2, 2}}, "odd");
                }),
                HasSubstr("2 rows sent by member 1 and 1 expected"));
    EXPECT_THAT(message_of<Error>([&] { group.broadcast(x, 2, "root"); }), HasSubstr("2 of 2"));
    EXPECT_THAT(message_of<Error>([&] { group.send(x, ranks.rank(), 0, "self"); }),
                HasSubstr("another member"));
    EXPECT_THAT(message_of<Error>([&] { group.recv(x, -1, 0, "nobody"); }), HasSubstr("-1 of 2"));
  });
}

TEST(ThreadRanks, AGroupOfOneCopies) {
  const Group alone;
  at::Tensor x = at::arange(4, at::kFloat), y = at::zeros({4});
  EXPECT_FALSE(alone.all_reduce(x, "test").pending());
  alone.all_gather(y, x, "test").wait();
  EXPECT_TRUE(y.equal(x));
  alone.reduce_scatter(y.zero_(), x, "test").wait();
  EXPECT_TRUE(y.equal(x));
  alone.all_to_all(y.zero_(), x, "test").wait();
  EXPECT_TRUE(y.equal(x));
  alone.broadcast(x, 0, "test").wait();
  alone.barrier("test");
  EXPECT_EQ(alone.all_gather_text("hello", "test"), std::vector<std::string>{"hello"});
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.size(), 1);
}

TEST(ThreadRanks, TheProgressPageNamesTheCollective) {
  run_ranks(2, [](Communicators& ranks) {
    at::Tensor x = at::ones({3});
    ranks.world().all_reduce(x, "layer 3 / attention.proj / sum").wait();
    const ProgressSnapshot now = progress().read();
    ASSERT_TRUE(now.last);
    EXPECT_EQ(now.rank, ranks.rank());
    EXPECT_EQ(now.last->what, "layer 3 / attention.proj / sum");
    EXPECT_EQ(now.last->axes, "world");
    EXPECT_EQ(now.last->members, (std::vector<int>{0, 1}));
    ASSERT_EQ(now.groups.size(), 1U);
    EXPECT_EQ(now.groups[0].started, 1U);
    EXPECT_EQ(now.groups[0].finished, 1U);
    EXPECT_FALSE(now.waiting);
  });
}

TEST(Work, WaitsOnceAndOnDestruction) {
  int waits = 0;
  {
    Work work([&] { ++waits; });
    EXPECT_TRUE(work.pending());
    work.wait();
    work.wait();
    EXPECT_FALSE(work.pending());
  }
  EXPECT_EQ(waits, 1);
  {
    const Work dropped([&] { ++waits; });
  }
  EXPECT_EQ(waits, 2);
  Work first([&] { ++waits; });
  Work moved = std::move(first);
  EXPECT_FALSE(first.pending());  // NOLINT: the moved-from state of Work is specified
  moved = Work([&] { waits += 10; });
  EXPECT_EQ(waits, 3);
  moved.wait();
  EXPECT_EQ(waits, 13);
}

TEST(Work, ADestroyedWorkDoesNotThrow) {
  {
    const Work dropped([] { throw CommError("lost"); });
  }
  EXPECT_THROW(Work([] { throw CommError("lost"); }).wait(), CommError);
}

TEST(Work, DoesNotWaitWhileAnExceptionUnwinds) {
  bool waited = false;
  try {
    const Work dropped([&] { waited = true; });
    throw DataError("stop");
  } catch (const DataError&) {
  }
  EXPECT_FALSE(waited);
}

}  // namespace
}  // namespace colonnade::comm
