// Implementation of collective_checks.h, and its tests over threads.
#include "comm/collective_checks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "colonnade/comm/thread_ranks.h"
#include "support/device.h"

namespace colonnade::test {
namespace {

/// Relative tolerance: one rounding from float32; strict for integers and float64.
double tolerance(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return 0.0079;
    case at::kHalf:
      return 0.00098;
    case at::kFloat:
      return 1e-6;
    default:
      return 1e-14;
  }
}

void expect_equal(const at::Tensor& got, const at::Tensor& expected, const char* what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  const at::Tensor want = expected.cpu().to(at::kDouble);
  const double absolute = got.scalar_type() == at::kDouble ? 1e-12 : 2e-5;  // for sums with cancellation
  EXPECT_TRUE(at::allclose(got.cpu().to(at::kDouble), want, tolerance(got.scalar_type()), absolute))
      << what << " " << c10::toString(got.scalar_type()) << "\ngot " << got << "\nexpected " << want;
}

/// Inputs of all members, stacked, in float64.
at::Tensor all_members(int size, const std::vector<std::int64_t>& shape, at::ScalarType type) {
  std::vector<at::Tensor> all;
  for (int r = 0; r < size; ++r) all.push_back(values(r, shape, type).to(at::kDouble));
  return at::stack(all);
}

void check_reductions(const comm::Group& group, at::ScalarType type, std::int64_t n) {
  const int size = group.size();
  const std::vector<std::int64_t> shape = {n, 3};
  const at::Tensor all = all_members(size, shape, type);
  for (const auto& [op, expected] :
       {std::pair{comm::Reduce::kSum, all.sum(0)}, std::pair{comm::Reduce::kMax, all.amax(0)},
        std::pair{comm::Reduce::kMin, all.amin(0)}}) {
    at::Tensor x = values(group.rank(), shape, type);
    group.all_reduce(x, "test / reduce", op).wait();
    expect_equal(x, expected, "all_reduce");
  }
  const std::vector<std::int64_t> full = {size * n, 3};
  at::Tensor slice = at::empty(shape, options(type));
  group.reduce_scatter(slice, values(group.rank(), full, type), "test / reduce_scatter").wait();
  expect_equal(slice,
               all_members(size, full, type).sum(0).chunk(size)[static_cast<std::size_t>(group.rank())],
               "reduce_scatter");
  // In place: the output may be a slice of the input, as in a sharded gradient buffer.
  at::Tensor buffer = values(group.rank(), full, type);
  group.reduce_scatter(buffer.narrow(0, group.rank() * n, n), buffer, "test / reduce_scatter in place")
      .wait();
  expect_equal(buffer.narrow(0, group.rank() * n, n), slice, "reduce_scatter in place");
}

void check_data_movement(const comm::Group& group, at::ScalarType type, std::int64_t n) {
  const int size = group.size();
  const std::vector<std::int64_t> shape = {n, 3}, full = {size * n, 3};
  const at::Tensor all = all_members(size, shape, type);
  at::Tensor gathered = at::zeros(full, options(type));
  group.all_gather(gathered, values(group.rank(), shape, type), "test / all_gather").wait();
  expect_equal(gathered, all.view(full), "all_gather");
  at::Tensor buffer = at::zeros(full, options(type));
  at::Tensor mine = buffer.narrow(0, group.rank() * n, n);
  mine.copy_(values(group.rank(), shape, type));
  group.all_gather(buffer, mine, "test / all_gather in place").wait();
  expect_equal(buffer, all.view(full), "all_gather in place");

  for (int root = 0; root < size; ++root) {
    at::Tensor x = values(group.rank(), shape, type);
    group.broadcast(x, root, "test / broadcast").wait();
    expect_equal(x, all[root], "broadcast");
  }
  at::Tensor exchanged = at::zeros(full, options(type));
  group.all_to_all(exchanged, values(group.rank(), full, type), "test / all_to_all").wait();
  const at::Tensor sent = all_members(size, full, type).view({size, size, n, 3});
  expect_equal(exchanged, sent.select(1, group.rank()).reshape(full), "all_to_all");
}

/// Member r sends (r + q) % 3 * n rows to q, which may be none.
void check_uneven_all_to_all(const comm::Group& group, at::ScalarType type, std::int64_t n) {
  const int size = group.size();
  const auto rows_of = [&](int from, int to) { return (from + to) % 3 * n; };
  const auto sent_by = [&](int from) {
    std::int64_t all = 0;
    for (int to = 0; to < size; ++to) all += rows_of(from, to);
    return values(from, {all, 2}, type);
  };
  comm::Rows rows;
  std::vector<at::Tensor> expected;
  for (int r = 0; r < size; ++r) {
    rows.sent.push_back(rows_of(group.rank(), r));
    rows.received.push_back(rows_of(r, group.rank()));
    std::int64_t first = 0;
    for (int q = 0; q < group.rank(); ++q) first += rows_of(r, q);
    expected.push_back(sent_by(r).narrow(0, first, rows.received.back()));
  }
  const at::Tensor want = at::cat(expected);
  at::Tensor got = at::zeros_like(want);
  group.all_to_all(got, sent_by(group.rank()), rows, "test / uneven rows").wait();
  expect_equal(got, want, "all_to_all of uneven rows");
}

}  // namespace

at::Tensor values(int rank, std::vector<std::int64_t> shape, at::ScalarType type) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  at::Tensor x = at::arange(count, at::kDouble).mul_(7).add_(rank * 5).remainder_(31).add_(1 + rank);
  if (at::isFloatingType(type)) x = x.mul(rank % 2 == 0 ? 0.37 : -0.21);
  return x.to(device(), type).view(shape);
}

void check_collectives(const comm::Group& group, at::ScalarType type) {
  for (const std::int64_t n : {1, 5, 1000}) {
    check_reductions(group, type, n);
    check_data_movement(group, type, n);
    check_uneven_all_to_all(group, type, n);
  }
  group.barrier("test / barrier");
}

void check_point_to_point(const comm::Group& group, at::ScalarType type) {
  const int size = group.size();
  if (size == 1) return;
  const int next = (group.rank() + 1) % size;
  const int previous = (group.rank() + size - 1) % size;
  // Two tags with two messages each, sent crosswise and awaited in another order.
  std::vector<comm::Work> works;
  std::vector<at::Tensor> got(4), sent(4);
  for (int message = 0; message < 4; ++message) {
    got[static_cast<std::size_t>(message)] = at::zeros({7}, options(type));
    sent[static_cast<std::size_t>(message)] = values(group.rank() + 10 * message, {7}, type);
  }
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  for (const int message : {2, 3, 0, 1})
    works.push_back(group.recv(got[at(message)], previous, message / 2, "test / recv"));
  for (const int message : {0, 1, 2, 3})
    works.push_back(group.send(sent[at(message)], next, message / 2, "test / send"));
  for (const int i : {1, 0, 3, 2}) works[at(i)].wait();
  for (const int message : {0, 1, 2, 3}) {
    expect_equal(got[at(message)], values(previous + 10 * message, {7}, type), "send and recv");
  }
}

void check_texts(const comm::Group& group) {
  std::vector<std::string> expected;
  for (int r = 0; r < group.size(); ++r)
    expected.push_back(std::string(static_cast<std::size_t>(r * 3), 'x') + "end");
  EXPECT_EQ(group.all_gather_text(expected[static_cast<std::size_t>(group.rank())], "test / texts"),
            expected);
  EXPECT_EQ(group.all_gather_text("", "test / no texts"), std::vector<std::string>(expected.size()));
}

TEST(CollectivesOverThreads, AgreeWithPlainArithmetic) {
  for (const int world : {1, 2, 3, 4, 7}) {
    comm::run_ranks(world, [](comm::Communicators& ranks) {
      for (const at::ScalarType type : kTypes) {
        check_collectives(ranks.world(), type);
        check_point_to_point(ranks.world(), type);
      }
      check_texts(ranks.world());
    });
  }
}

TEST(CollectivesOverThreads, RoundLowPrecisionSumsOnce) {
  comm::run_ranks(4, [](comm::Communicators& ranks) {
    // 256 + 1 + 1 + 1: bfloat16 has 8 bits, so adding ones to 256 one by one loses all of them.
    at::Tensor x = at::full({5}, ranks.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    ranks.world().all_reduce(x, "test").wait();
    EXPECT_EQ(x[4].item<float>(), 260.0F);  // 259 rounded to even
  });
}

TEST(CollectivesOverThreads, PropagateNanThroughMaximumAndMinimum) {
  for (const auto op : {comm::Reduce::kMax, comm::Reduce::kMin}) {
    comm::run_ranks(3, [&](comm::Communicators& ranks) {
      at::Tensor x = at::full({3}, static_cast<double>(ranks.rank()));
      if (ranks.rank() == 1) x[1] = std::nan("");
      ranks.world().all_reduce(x, "test", op).wait();
      EXPECT_TRUE(x[1].isnan().item<bool>());
      EXPECT_FALSE(x[0].isnan().item<bool>());
    });
  }
}

}  // namespace colonnade::test
