// See save_files.h.
#include "colonnade/checkpoint/save_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <system_error>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/write_error.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::checkpoint {
namespace {

constexpr std::int64_t kMaxUnderWay = std::int64_t{256} << 20;

/// Messages on their way; waits for the oldest while there are too many bytes.
class Outbox {
 public:
  void add(at::Tensor message, comm::Work work) {
    bytes_ += message.numel();
    sent_.emplace_back(std::move(message), std::move(work));
    while (bytes_ > kMaxUnderWay) finish_oldest();
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

/// The slices of one rank of one tensor, one behind the other: what travels as one message of bytes.
struct Message {
  const PlannedTensor& tensor;
  std::vector<const Piece*> pieces;
  at::Tensor bytes;

  Message(const PlannedTensor& of, int rank) : tensor(of) {
    std::int64_t numel = 0;
    for (const Piece& piece : of.pieces) {
      if (piece.rank != rank) continue;
      pieces.push_back(&piece);
      numel += piece.box.numel();
    }
    bytes = at::empty({numel * static_cast<std::int64_t>(c10::elementSize(of.dtype))}, at::kByte);
  }

  /// Calls use(piece, its part of the message).
  template <typename Use>
  void each(const Use& use) {
    auto* at = static_cast<std::byte*>(bytes.data_ptr());
    for (const Piece* piece : pieces) {
      use(*piece, at::from_blob(at, piece->box.shape, at::TensorOptions().dtype(tensor.dtype)));
      at += piece->box.numel() * static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
    }
  }
};

std::vector<int> ranks_of(const PlannedTensor& tensor) {
  std::vector<int> ranks;
  for (const Piece& piece : tensor.pieces)
    if (ranks.empty() || ranks.back() != piece.rank) ranks.push_back(piece.rank);
  return ranks;
}

/// The whole tensor on its writer: this rank's slice itself where that is all, else put together.
at::Tensor collect(const PlannedTensor& tensor, int tag, const std::vector<Slice>& slices,
                   const comm::Group& world) {
  const std::string what = "checkpoint: " + tensor.name;
  if (tensor.pieces.size() == 1 && tensor.writer == world.rank() && tensor.pieces[0].rank == world.rank())
    return slices[tensor.pieces[0].index].data.detach();
  Slice whole{tensor.name, tensor.shape, Sizes(tensor.shape.size(), 0),
              at::empty(tensor.shape, at::TensorOptions().dtype(tensor.dtype))};
  for (const int rank : ranks_of(tensor)) {
    if (rank == world.rank()) {
      for (const Piece& piece : tensor.pieces)
        if (piece.rank == rank) part_of(whole, piece.box).copy_(slices[piece.index].data.detach());
      continue;
    }
    Message message(tensor, rank);
    world.recv(message.bytes, rank, tag, what).wait();
    message.each([&](const Piece& piece, const at::Tensor& part) { part_of(whole, piece.box).copy_(part); });
  }
  return whole.data;
}

void send_pieces(const PlannedTensor& tensor, int tag, const std::vector<Slice>& slices,
                 const comm::Group& world, Outbox& outbox) {
  Message message(tensor, world.rank());
  if (message.pieces.empty()) return;
  message.each([&](const Piece& piece, at::Tensor part) { part.copy_(slices[piece.index].data.detach()); });
  outbox.add(message.bytes, world.send(message.bytes, tensor.writer, tag, "checkpoint: " + tensor.name));
}

}  // namespace

Problem problem_of(const std::exception& error) {
  const std::string text = *error.what() != '\0' ? error.what() : "an error without a message";
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  const bool full = system != nullptr && is_no_space(system->code().value());
  if (full) return {fmt::format("{}; free some space, or save into another folder", text), kExitSettings};
  const bool settings = dynamic_cast<const ConfigError*>(&error) != nullptr;
  return {text, settings ? kExitSettings : kExitFailed};
}

FileSums write_model(const SavePlan& plan, const std::vector<Slice>& slices, const comm::Group& world,
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
      send_pieces(tensor, static_cast<int>(i), slices, world, outbox);
      continue;
    }
    const at::Tensor whole = collect(tensor, static_cast<int>(i), slices, world);
    attempt(problem, [&] { writer->write(whole); });
  }
  outbox.finish();
  FileSums sums;
  if (!file.empty()) attempt(problem, [&] { sums[file] = writer->finish(); });
  return sums;
}

FileSums write_optimizer(const SavePlan& plan, const std::vector<Slice>& slices, int rank,
                         const std::filesystem::path& folder) {
  struct Chunk {
    TensorSpec spec;
    std::size_t index;
  };
  std::vector<Chunk> chunks;
  for (const PlannedTensor& tensor : plan.optimizer)
    for (const Piece& piece : tensor.pieces)
      if (piece.rank == rank)
        chunks.push_back(
            {{chunk_key(tensor.name, tensor.shape, piece.box), tensor.dtype, piece.box.shape}, piece.index});
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
