// libcolonnade_parquet.so: see rows.h. Reads row group by row group, page by page.
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/util/io_util.h>
#include <fmt/format.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <optional>

#include "colonnade/corpus/parquet/columns.h"
#include "colonnade/corpus/parquet/rows.h"

namespace colonnade::corpus::parquet {
namespace {

namespace pq = ::parquet;

/// Maximum memory of all open pages, compressed and decompressed, of all files of the process: Arrow's system
/// pool counts them together. Files that are open at the same time share it, as do threads, two of which may
/// exceed it by simultaneous requests.
constexpr std::int64_t kPages = std::int64_t{384} << 20;
/// Three bytes of a footer may need hundreds of bytes of memory, which Arrow's pool does not count.
constexpr std::int64_t kLongestFooter = std::int64_t{16} << 20;
/// Read buffer per column.
constexpr std::int64_t kBuffer = std::int64_t{1} << 18;

Fault damaged(std::string_view what) {
  return {Fault::kData, fmt::format("must be complete Parquet data; got {}; copy it again", what)};
}

Fault fault_of(const arrow::Status& status) {
  if (status.IsOutOfMemory())
    return {
        Fault::kData,
        fmt::format("pages of the columns must fit {} MiB of memory; got larger ones; rewrite the file with "
                    "smaller pages (pyarrow: write_batch_size=16)",
                    kPages >> 20)};
  if (const int code = arrow::internal::ErrnoFromStatus(status); code != 0)
    return {Fault::kSystem, std::strerror(code)};
  return damaged(status.message());
}

/// Calls act() and converts its exception.
template <typename Act>
Fault guarded(Act&& act) noexcept {
  try {
    act();
    return {};
  } catch (const Unusable& error) {
    return {Fault::kData, error.what()};
  } catch (const pq::ParquetStatusException& error) {
    return fault_of(error.status());
  } catch (const std::bad_alloc&) {
    return fault_of(arrow::Status::OutOfMemory(""));
  } catch (const std::exception& error) {
    return damaged(error.what());
  }
}

/// Throws Unusable for a footer that needs too much memory; Arrow reports invalid ones.
void check_footer(arrow::io::ReadableFile& file) {
  PARQUET_ASSIGN_OR_THROW(const std::int64_t bytes, file.GetSize());
  std::uint32_t length = 0;
  if (bytes < 8) return;
  PARQUET_ASSIGN_OR_THROW(const std::int64_t got, file.ReadAt(bytes - 8, sizeof length, &length));
  if (got == sizeof length && length > kLongestFooter && length < bytes)
    throw Unusable(fmt::format(
        "a footer must have at most {} MiB; got {} MiB; rewrite the file with larger row groups or fewer columns, as "
        "several files",
        kLongestFooter >> 20, length >> 20));
}

class FileRows final : public Rows {
 public:
  FileRows(const std::string& path, const Columns& columns) {
    pq::ReaderProperties properties(&pool_);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBuffer);
    properties.set_page_checksum_verification(true);
    std::shared_ptr<arrow::io::ReadableFile> file;
    PARQUET_ASSIGN_OR_THROW(file, arrow::io::ReadableFile::Open(path, &pool_));
    check_footer(*file);
    file_ = pq::ParquetFileReader::Open(file, properties);
    const pq::FileMetaData& about = *file_->metadata();
    shape_ = shape_of(*about.schema(), columns);
    for (int i = 0; i < about.num_row_groups(); ++i) {
      const std::int64_t rows = about.RowGroup(i)->num_rows();
      if (rows < 0 || rows > std::numeric_limits<std::int64_t>::max() - size_)
        throw Damaged(fmt::format("{} rows in row group {}", rows, i));
      starts_.push_back(size_);
      size_ += rows;
    }
  }

  Fault next(Row& row, std::size_t longest) override {
    return guarded([&] {
      open_group();
      group_->write(row, longest);
      advance();
    });
  }
  Fault go_to(std::int64_t row) override {
    return guarded([&] {
      if (row < 0 || row > size_) throw Damaged(fmt::format("{} rows and a position after {}", size_, row));
      group_.reset();
      at_ = row < size_ ? starts_[group_of(row)] : row;
      while (at_ < row) {
        open_group();
        group_->skip_row();
        advance();
      }
    });
  }
  [[nodiscard]] std::int64_t at() const override { return at_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }

 private:
  /// The last of the row groups that start with the same row is the one that holds it.
  [[nodiscard]] std::size_t group_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(starts_, row) - starts_.begin()) - 1;
  }
  void open_group() {
    if (group_) return;
    const std::size_t group = group_of(at_);
    group_.emplace(file_->RowGroup(static_cast<int>(group)), shape_);
    end_ = group + 1 < starts_.size() ? starts_[group + 1] : size_;
  }
  void advance() {
    if (++at_ < end_) return;
    group_->expect_end();
    group_.reset();
  }

  arrow::CappedMemoryPool pool_{arrow::system_memory_pool(), kPages};  // must outlive the members below
  std::unique_ptr<pq::ParquetFileReader> file_;
  Shape shape_;
  std::vector<std::int64_t> starts_;  // the first row of each row group
  std::int64_t size_ = 0, at_ = 0, end_ = 0;
  std::optional<RowGroup> group_;
};

}  // namespace
}  // namespace colonnade::corpus::parquet

extern "C" __attribute__((visibility("default"))) colonnade::corpus::parquet::Rows* colonnade_parquet_open_1(
    const char* path, const colonnade::corpus::parquet::Columns* columns,
    colonnade::corpus::parquet::Fault* fault) {
  using namespace colonnade::corpus::parquet;
  std::unique_ptr<Rows> rows;
  *fault = guarded([&] { rows = std::make_unique<FileRows>(path, *columns); });
  return rows.release();
}
