// Reading and writing safetensors files; safetensors_header.cpp parses the header.
#include "colonnade/checkpoint/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/base/write_error.h"

namespace colonnade::checkpoint {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      map_(std::make_shared<MappedFile>(path)),
      header_(parse_safetensors(map_->bytes(), path)) {}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end())
    throw DataError(fmt::format("{} must hold the tensor '{}'; got {} others; see `checkpoint inspect`",
                                path_.string(), name, header_.tensors.size()));
  return found->second;
}

at::Tensor SafetensorsFile::view(const std::string& name) const {
  const TensorInfo& info = this->info(name);
  const auto options = at::TensorOptions().dtype(info.dtype);
  if (info.bytes == 0) return at::empty(info.shape, options);
  const std::byte* data = map_->bytes().data() + info.offset;
  if (info.offset % c10::elementSize(info.dtype) != 0) {
    at::Tensor copy = at::empty(info.shape, options);
    std::memcpy(copy.data_ptr(), data, info.bytes);
    return copy;
  }
  return at::from_blob(
      const_cast<std::byte*>(data), info.shape, [map = map_](void*) {}, options);
}

bool file_order(const TensorSpec& a, const TensorSpec& b) {
  const std::size_t size_a = c10::elementSize(a.dtype);
  const std::size_t size_b = c10::elementSize(b.dtype);
  return size_a != size_b ? size_a > size_b : a.name < b.name;
}

struct SafetensorsWriter::State {
  std::filesystem::path path;
  std::vector<TensorSpec> tensors;
  std::size_t next = 0;
  int fd = -1;
  Checksum sum;
  std::uint64_t written = 0;

  ~State() {
    if (fd >= 0) ::close(fd);
  }

  [[noreturn]] void stop() const { throw_write_error(path, errno); }

  // Writes in pieces of 16 MB: the checksum warms the cache for the copy, and the disk starts early.
  void append(const void* data, std::size_t bytes) {
    constexpr std::size_t kPiece = std::size_t{16} << 20;
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      progress().heartbeat();
      const std::size_t piece = std::min(bytes, kPiece);
      sum.update(at, piece);
      for (std::size_t done = 0; done < piece;) {
        const ssize_t n = ::write(fd, at + done, piece - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) stop();
        done += static_cast<std::size_t>(n);
      }
      ::sync_file_range(fd, static_cast<off_t>(written), static_cast<off_t>(piece), SYNC_FILE_RANGE_WRITE);
      written += piece;
      at += piece;
      bytes -= piece;
    }
  }

  void reserve(std::uint64_t bytes) const {
    if (bytes == 0 || ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return;
    if (is_no_space(errno)) stop();
  }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorSpec>& tensors, const Metadata& metadata)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->tensors = tensors;
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    COL_CHECK(i == 0 || file_order(tensors[i - 1], tensors[i]),
              "{}: tensors must be unique and in file order; got '{}' before '{}'", path.string(),
              tensors[i - 1].name, tensors[i].name);
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(c10::multiply_integers(tensors[i].shape)) *
           c10::elementSize(tensors[i].dtype);
    header[tensors[i].name] = {
        {"dtype", dtype_name(tensors[i].dtype)}, {"shape", tensors[i].shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();

  state_->fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (state_->fd < 0) state_->stop();
  state_->reserve(sizeof length + length + end);
  state_->append(&length, sizeof length);
  state_->append(text.data(), text.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(const at::Tensor& tensor) {
  COL_CHECK(state_->next < state_->tensors.size(), "{}: must get the {} tensors of its header; got one more",
            state_->path.string(), state_->tensors.size());
  const TensorSpec& spec = state_->tensors[state_->next++];
  COL_CHECK(tensor.scalar_type() == spec.dtype && tensor.sizes() == at::IntArrayRef(spec.shape),
            "{}: '{}' must be {} of [{}]; got {} of [{}]", state_->path.string(), spec.name,
            dtype_name(spec.dtype), fmt::join(spec.shape, ", "), c10::toString(tensor.scalar_type()),
            fmt::join(tensor.sizes(), ", "));
  const at::Tensor host = tensor.detach().cpu().contiguous();
  state_->append(host.const_data_ptr(), host.nbytes());
}

FileChecksum SafetensorsWriter::finish() {
  COL_CHECK(state_->next == state_->tensors.size(), "{}: must get the {} tensors of its header; got {}",
            state_->path.string(), state_->tensors.size(), state_->next);
  if (::fsync(state_->fd) != 0) state_->stop();
  if (::close(std::exchange(state_->fd, -1)) != 0) state_->stop();
  return {state_->written, state_->sum.hex()};
}

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors)
    specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  std::sort(specs.begin(), specs.end(), file_order);
  const std::filesystem::path staged = path.string() + fmt::format(".part-{}", ::getpid());
  try {
    SafetensorsWriter writer(staged, specs, metadata);
    for (const TensorSpec& spec : specs) writer.write(tensors.at(spec.name));
    writer.finish();
    std::filesystem::rename(staged, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(staged, ignored);
    throw;
  }
}

}  // namespace colonnade::checkpoint
