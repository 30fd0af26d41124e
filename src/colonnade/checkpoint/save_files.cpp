// See save_files.h.
#include "colonnade/checkpoint/save_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/write_error.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::checkpoint {

using nlohmann::json;

namespace {

constexpr std::int64_t kMaxInFlight = std::int64_t{256} << 20;

/// Messages in flight; waits for the oldest while there are too many bytes.
class Outbox {
 public:
  void add(at::Tensor message, comm::Work work) {
    bytes_ += message.numel();
    sent_.emplace_back(std::move(message), std::move(work));
    while (bytes_ > kMaxInFlight) finish_oldest();
  }
  void finish() {
    while (!sent_.empty()) finish_oldest();
  }

 private:
  void finish_oldest() {
    sent_.front().second.wait();
    bytes_ -= sent_.front().first.numel();
    sent_.pop_front();
  }
  std::int64_t bytes_ = 0;
  std::deque<std::pair<at::Tensor, comm::Work>> sent_;
};

/// One rank's slices of one tensor, concatenated and sent as one message of bytes.
struct Message {
  const PlannedTensor& tensor;
  std::vector<const PlannedSlice*> slices;
  at::Tensor bytes;

  Message(const PlannedTensor& of, int rank) : tensor(of) {
    std::int64_t numel = 0;
    for (const PlannedSlice& slice : of.slices) {
      if (slice.rank != rank) continue;
      slices.push_back(&slice);
      numel += slice.box.numel();
    }
    bytes = at::empty({numel * static_cast<std::int64_t>(c10::elementSize(of.dtype))}, at::kByte);
  }

  /// Calls use(slice, its view of the message).
  template <typename Use>
  void each(const Use& use) {
    auto* at = static_cast<std::byte*>(bytes.data_ptr());
    for (const PlannedSlice* slice : slices) {
      use(*slice, at::from_blob(at, slice->box.shape, at::TensorOptions().dtype(tensor.dtype)));
      at += slice->box.numel() * static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
    }
  }
};

std::vector<int> ranks_of(const PlannedTensor& tensor) {
  std::vector<int> ranks;
  for (const PlannedSlice& slice : tensor.slices)
    if (ranks.empty() || ranks.back() != slice.rank) ranks.push_back(slice.rank);
  return ranks;
}

/// The full tensor on its writer: this rank's slice where that is all of it, else assembled from messages.
at::Tensor collect(const PlannedTensor& tensor, int tag, const std::vector<Slice>& slices,
                   const comm::Group& world) {
  const std::string what = "checkpoint: " + tensor.name;
  if (tensor.slices.size() == 1 && tensor.writer == world.rank() && tensor.slices[0].rank == world.rank())
    return slices[tensor.slices[0].index].data.detach();
  Slice full{tensor.name, tensor.shape, Sizes(tensor.shape.size(), 0),
             at::empty(tensor.shape, at::TensorOptions().dtype(tensor.dtype))};
  for (const int rank : ranks_of(tensor)) {
    if (rank == world.rank()) {
      for (const PlannedSlice& slice : tensor.slices)
        if (slice.rank == rank) subview(full, slice.box).copy_(slices[slice.index].data.detach());
      continue;
    }
    Message message(tensor, rank);
    world.recv(message.bytes, rank, tag, what).wait();
    message.each(
        [&](const PlannedSlice& slice, const at::Tensor& data) { subview(full, slice.box).copy_(data); });
  }
  return full.data;
}

void send_slices(const PlannedTensor& tensor, int tag, const std::vector<Slice>& slices,
                 const comm::Group& world, Outbox& outbox) {
  Message message(tensor, world.rank());
  if (message.slices.empty()) return;
  message.each(
      [&](const PlannedSlice& slice, at::Tensor data) { data.copy_(slices[slice.index].data.detach()); });
  outbox.add(message.bytes, world.send(message.bytes, tensor.writer, tag, "checkpoint: " + tensor.name));
}

/// A rank's report to the others: its problem, or the files it has written.
std::string report(const Problem& problem, const FileChecksums& files) {
  json list = json::object();
  for (const auto& [name, sum] : files) list[name] = {sum.bytes, sum.xxh3_128};
  return json{{"problem", problem.text}, {"code", problem.code}, {"files", list}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

FileChecksums agree(const comm::Group& world, Problem& problem, const FileChecksums& files,
                    std::string_view what) {
  const std::vector<std::string> reports = world.all_gather_text(report(problem, files), what);
  FileChecksums all;
  problem = {};
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const json one = json::parse(reports[rank]);
    for (const auto& [name, sum] : one.at("files").items())
      all[name] = {sum[0].get<std::uint64_t>(), sum[1].get<std::string>()};
    const auto text = one.at("problem").get<std::string>();
    if (!text.empty() && problem.empty())
      problem = {reports.size() > 1 ? fmt::format("rank {}: {}", rank, text) : text,
                 one.at("code").get<int>()};
  }
  return all;
}

Problem problem_of(const std::exception& error) {
  const std::string text = *error.what() != '\0' ? error.what() : "an error without a message";
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  const bool full = system != nullptr && is_no_space(system->code().value());
  if (full) return {fmt::format("{}; free some space, or save into another folder", text), kExitSettings};
  const bool settings = dynamic_cast<const ConfigError*>(&error) != nullptr;
  return {text, settings ? kExitSettings : kExitFailed};
}

FileChecksums write_model(const SavePlan& plan, const std::vector<Slice>& slices, const comm::Group& world,
                          const std::filesystem::path& folder, Problem& problem) {
  const std::string& file = plan.model_files[static_cast<std::size_t>(world.rank())];
  std::vector<TensorSpec> mine;
  for (const PlannedTensor& tensor : plan.model)
    if (tensor.writer == world.rank()) mine.push_back({tensor.name, tensor.dtype, tensor.shape});
  std::optional<SafetensorsWriter> writer;
  if (!file.empty()) attempt(problem, [&] { writer.emplace(folder / file, mine); });

  Outbox outbox;
  for (std::size_t i = 0; i < plan.model.size(); ++i) {
    const PlannedTensor& tensor = plan.model[i];
    if (tensor.writer != world.rank()) {
      send_slices(tensor, static_cast<int>(i), slices, world, outbox);
      continue;
    }
    const at::Tensor full = collect(tensor, static_cast<int>(i), slices, world);
    attempt(problem, [&] { writer->write(full); });
  }
  outbox.finish();
  FileChecksums sums;
  if (!file.empty()) attempt(problem, [&] { sums[file] = writer->finish(); });
  return sums;
}

FileChecksums write_optimizer(const SavePlan& plan, const std::vector<Slice>& slices, int rank,
                              const std::filesystem::path& folder) {
  struct Chunk {
    TensorSpec spec;
    std::size_t index;
  };
  std::vector<Chunk> chunks;
  for (const PlannedTensor& tensor : plan.optimizer)
    for (const PlannedSlice& slice : tensor.slices)
      if (slice.rank == rank)
        chunks.push_back(
            {{chunk_key(tensor.name, tensor.shape, slice.box), tensor.dtype, slice.box.shape}, slice.index});
  if (chunks.empty()) return {};
  std::sort(chunks.begin(), chunks.end(),
            [](const Chunk& a, const Chunk& b) { return file_order(a.spec, b.spec); });
  std::vector<TensorSpec> specs;
  for (const Chunk& chunk : chunks) specs.push_back(chunk.spec);
  SafetensorsWriter writer(folder / optimizer_file(rank), specs);
  for (const Chunk& chunk : chunks) writer.write(slices[chunk.index].data);
  return {{optimizer_file(rank), writer.finish()}};
}

}  // namespace colonnade::checkpoint
