// Backend that communicates nothing and records when operations start and are waited for.
#pragma once

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/comm/backend.h"

namespace colonnade::test {

/// Member 0 of `size`. Outputs are unchanged.
class RecordingBackend final : public comm::Backend {
 public:
  explicit RecordingBackend(int size) : Backend(first_ranks(size), 0) {}

  /// "start all_reduce NAME" and "wait all_reduce NAME" in order; tests may add their own events.
  std::vector<std::string> events;

  [[nodiscard]] std::string_view name() const override { return "recording"; }
  comm::Work all_reduce(at::Tensor, comm::Reduce, const comm::Call& call) override { return start(call); }
  comm::Work all_gather(at::Tensor, at::Tensor, const comm::Call& call) override { return start(call); }
  comm::Work reduce_scatter(at::Tensor, at::Tensor, const comm::Call& call) override { return start(call); }
  comm::Work broadcast(at::Tensor, int, const comm::Call& call) override { return start(call); }
  comm::Work all_to_all(at::Tensor, at::Tensor, const comm::Rows&, const comm::Call& call) override {
    return start(call);
  }
  comm::Work send(at::Tensor, int, int, const comm::Call& call) override { return start(call); }
  comm::Work recv(at::Tensor, int, int, const comm::Call& call) override { return start(call); }
  void barrier(const comm::Call& call) override { start(call).wait(); }

 private:
  static std::vector<int> first_ranks(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  comm::Work start(const comm::Call& call) {
    const std::string what = fmt::format("{} {}", call.operation, call.what);
    events.push_back("start " + what);
    return comm::Work([this, what] { events.push_back("wait " + what); });
  }
};

}  // namespace colonnade::test
