// Writes folders of torch.distributed.checkpoint (distributed.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/checkpoint/checksum.h"
#include "colonnade/checkpoint/slice.h"

namespace colonnade::checkpoint {

/// A segment of a file: a chunk of a tensor, or an object.
struct Segment {
  std::string key;
  std::string file;
  std::int64_t offset = 0, length = 0;
  bool is_tensor = false;
  at::ScalarType dtype = at::kFloat;  ///< of a tensor
  Sizes shape;                        ///< of the whole tensor
  Box box;
};

/// Writes one *.distcp file sequentially. Errors (full disk, read-only folder) throw Error with path and
/// reason; the caller removes a partial file.
class SegmentWriter {
 public:
  explicit SegmentWriter(const std::filesystem::path& path);
  ~SegmentWriter();
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  /// Writes a chunk, on any device and with any strides.
  void add(const Slice& slice);
  /// Writes torch.save of an object, whose pickle it is.
  void add_object(const std::string& key, const std::string& pickle);
  /// Syncs and closes; the segments in order.
  std::vector<Segment> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Contents of .metadata for the segments of all files. Chunks of each tensor cover it once.
std::string distributed_metadata(const std::vector<Segment>& segments);

/// Segments as text for an all-gather, and back.
std::string to_text(const std::vector<Segment>& segments);
std::vector<Segment> segments_of(const std::string& text);

}  // namespace colonnade::checkpoint
