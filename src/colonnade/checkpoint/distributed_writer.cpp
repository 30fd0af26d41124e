// See distributed_writer.h. Source of the classes: torch/distributed/checkpoint/metadata.py and
// filesystem.py.
#include "colonnade/checkpoint/distributed_writer.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/base/write_error.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/checkpoint/torch_file.h"
#include "colonnade/pickle/write.h"

namespace colonnade::checkpoint {
namespace {

using nlohmann::json;
using pickle::Writer;

constexpr const char* kClasses = "torch.distributed.checkpoint.metadata";

void write_size(Writer& w, const Sizes& sizes) {
  w.global("torch", "Size");
  w.begin_tuple();
  w.integers(sizes);
  w.end_tuple();
  w.reduce();
}

/// Begins an object whose attributes follow in a dict.
void begin_object(Writer& w, const char* module, const char* name) {
  w.global(module, name);
  w.begin_tuple();
  w.end_tuple();
  w.new_object();
  w.begin_dict();
}
void end_object(Writer& w) {
  w.end_dict();
  w.build();
}

void write_properties(Writer& w, at::ScalarType dtype) {
  w.global(kClasses, "TensorProperties");
  w.begin_tuple(), w.end_tuple(), w.new_object();
  w.begin_tuple();
  w.global("torch", torch_dtype_name(dtype));
  w.global("torch.serialization", "_get_layout");
  w.begin_tuple(), w.text("torch.strided"), w.end_tuple(), w.reduce();
  w.boolean(false);  // requires_grad
  w.global(kClasses, "_MEM_FORMAT_ENCODING");
  w.begin_tuple(), w.integer(0), w.end_tuple(), w.reduce();
  w.boolean(false);  // pin_memory
  w.end_tuple();
  w.build();
}

void write_tensor_entry(Writer& w, const std::vector<const Segment*>& chunks) {
  begin_object(w, kClasses, "TensorStorageMetadata");
  w.text("properties"), write_properties(w, chunks[0]->dtype);
  w.text("size"), write_size(w, chunks[0]->shape);
  w.text("chunks"), w.begin_list();
  for (const Segment* chunk : chunks) {
    begin_object(w, kClasses, "ChunkStorageMetadata");
    w.text("offsets"), write_size(w, chunk->box.offset);
    w.text("sizes"), write_size(w, chunk->box.shape);
    end_object(w);
  }
  w.end_list();
  end_object(w);
}

void write_place(Writer& w, const Segment& segment, std::int64_t index) {
  begin_object(w, kClasses, "MetadataIndex");
  w.text("fqn"), w.text(segment.key);
  w.text("offset");
  segment.is_tensor ? write_size(w, segment.box.offset) : w.none();
  w.text("index");
  segment.is_tensor ? w.integer(index) : w.none();
  end_object(w);
  begin_object(w, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
  w.text("relative_path"), w.text(segment.file);
  w.text("offset"), w.integer(segment.offset);
  w.text("length"), w.integer(segment.length);
  w.text("transform_descriptors"), w.none();
  end_object(w);
}

}  // namespace

struct SegmentWriter::State {
  std::filesystem::path path;
  int fd = -1;
  std::int64_t written = 0;
  std::vector<Segment> segments;

  ~State() {
    if (fd >= 0) ::close(fd);
  }
  void append(const void* data, std::size_t bytes) {
    constexpr std::size_t kPiece = std::size_t{16} << 20;
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      progress().heartbeat();
      const ssize_t n = ::write(fd, at, std::min(bytes, kPiece));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_write_error(path, errno);
      at += n;
      bytes -= static_cast<std::size_t>(n);
      written += n;
    }
  }
  /// Writes a zip of torch.save: a pickle, and storage 0 where there is one. LibTorch's writer also writes in
  /// its destructor, where a failure would end the process: it is told of no failure, and the first is thrown
  /// afterwards.
  void add(Segment segment, const std::string& pickle, const at::Tensor* storage) {
    segment.file = path.filename().string();
    segment.offset = written;
    std::exception_ptr failure;
    caffe2::serialize::PyTorchStreamWriter zip([&](const void* data, std::size_t bytes) {
      try {
        if (!failure) append(data, bytes);
      } catch (...) {
        failure = std::current_exception();
      }
      return bytes;
    });
    zip.writeRecord("data.pkl", pickle.data(), pickle.size());
    zip.writeRecord("byteorder", "little", 6);
    if (storage != nullptr) zip.writeRecord("data/0", storage->const_data_ptr(), storage->nbytes());
    zip.writeEndOfFile();
    if (failure) std::rethrow_exception(failure);
    segment.length = written - segment.offset;
    segments.push_back(std::move(segment));
  }
};

SegmentWriter::SegmentWriter(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  state_->path = path;
  constexpr mode_t kAnyoneReads = 0666;
  state_->fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kAnyoneReads);
  if (state_->fd < 0) throw_write_error(path, errno);
}
SegmentWriter::~SegmentWriter() = default;

void SegmentWriter::add(const Slice& slice) {
  const at::Tensor data = slice.data.detach().to(at::kCPU).contiguous();
  state_->add({.key = slice.name,
               .file = "",
               .is_tensor = true,
               .dtype = data.scalar_type(),
               .shape = slice.global_shape,
               .box = slice.box()},
              tensor_pickle(data), &data);
}

void SegmentWriter::add_object(const std::string& key, const std::string& pickle) {
  state_->add({.key = key, .file = "", .shape = {}, .box = {}}, pickle, nullptr);
}

std::vector<Segment> SegmentWriter::finish() {
  if (::fsync(state_->fd) != 0) throw_write_error(state_->path, errno);
  const int fd = std::exchange(state_->fd, -1);
  if (::close(fd) != 0) throw_write_error(state_->path, errno);
  return std::move(state_->segments);
}

std::string distributed_metadata(const std::vector<Segment>& segments) {
  std::map<std::string, std::vector<const Segment*>> by_key;
  for (const Segment& segment : segments) by_key[segment.key].push_back(&segment);
  Writer w;
  begin_object(w, kClasses, "Metadata");
  w.text("state_dict_metadata"), w.begin_dict();
  for (const auto& [key, chunks] : by_key) {
    w.text(key);
    if (chunks[0]->is_tensor) {
      write_tensor_entry(w, chunks);
    } else {
      begin_object(w, kClasses, "BytesStorageMetadata");
      end_object(w);
    }
  }
  w.end_dict();
  w.text("planner_data"), w.none();
  w.text("storage_data"), w.begin_dict();
  for (const auto& [key, chunks] : by_key)
    for (std::size_t i = 0; i < chunks.size(); ++i) write_place(w, *chunks[i], static_cast<std::int64_t>(i));
  w.end_dict();
  w.text("storage_meta"), w.none();
  w.text("version"), w.text("1.0.0");
  end_object(w);
  return std::move(w).finish();
}

std::string to_text(const std::vector<Segment>& segments) {
  json all = json::array();
  for (const Segment& s : segments)
    all.push_back({s.key, s.file, s.offset, s.length, s.is_tensor, s.is_tensor ? dtype_name(s.dtype) : "",
                   s.shape, s.box.offset, s.box.shape});
  return all.dump();
}

std::vector<Segment> segments_of(const std::string& text) {
  const json all = json::parse(text);
  std::vector<Segment> segments;
  for (const json& s : all) {
    Segment segment{.key = s[0],
                    .file = s[1],
                    .offset = s[2],
                    .length = s[3],
                    .is_tensor = s[4],
                    .shape = s[6],
                    .box = {s[7], s[8]}};
    if (segment.is_tensor) segment.dtype = dtype_of(s[5].get<std::string>()).value();
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace colonnade::checkpoint
