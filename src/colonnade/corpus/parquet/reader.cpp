// See reader.h.
#include "colonnade/corpus/parquet/reader.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/fault_text.h"

namespace colonnade::corpus::parquet {
namespace {

/// Loads the module from the program's search path: next to it, as in the build folder, or the installed
/// lib/.
Open load() {
  void* const module = ::dlopen(kModule, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = module == nullptr ? nullptr : ::dlsym(module, kOpenSymbol);
  if (symbol == nullptr) {
    const char* why = ::dlerror();
    throw ConfigError(fmt::format(
        "Parquet: {} of this version must be next to the program; got {}; run tools/setup.sh and build "
        "with COLONNADE_PARQUET=ON, or write JSON lines with e.g. python3 -c \"import pandas; "
        "pandas.read_parquet('a.parquet').to_json('a.jsonl', orient='records', lines=True)\"",
        kModule, why == nullptr ? "another version" : why));
  }
  return reinterpret_cast<Open>(symbol);
}

class Reader final : public ByteReader {
 public:
  Reader(const std::filesystem::path& path, const Columns& columns, std::size_t longest)
      : path_(path.string()), longest_(longest), file_size_(std::filesystem::file_size(path)) {
    static const Open open_rows = load();
    Fault fault;
    rows_.reset(open_rows(path_.c_str(), &columns, &fault));
    check(fault);
  }

  std::size_t read(char* out, std::size_t size) override {
    std::size_t done = 0;
    while (done < size) {
      if (!in_row_) {
        if (rows_->at() == rows_->size()) break;
        check(rows_->next(row_, longest_));
        taken_ = 0;
        in_row_ = true;
      }
      if (const std::size_t part = std::min(size - done, row_.text.size() - taken_); part > 0) {
        std::memcpy(out + done, row_.text.data() + taken_, part);
        taken_ += part;
        done += part;
      } else if (const std::size_t filler = std::min(size - done, row_.dropped); filler > 0) {
        std::memset(out + done, ' ', filler);
        row_.dropped -= filler;
        done += filler;
      } else {
        out[done++] = '\n';
        in_row_ = false;
      }
    }
    return done;
  }
  void go_to(const LinePosition& position) override { check(rows_->go_to(position.line - 1)); }
  [[nodiscard]] bool is_rows() const override { return true; }
  [[nodiscard]] std::int64_t file_bytes() const override {
    if (rows_->at() == rows_->size()) return static_cast<std::int64_t>(file_size_);
    return static_cast<std::int64_t>(static_cast<double>(file_size_) * static_cast<double>(rows_->at()) /
                                     static_cast<double>(rows_->size()));
  }

 private:
  void check(const Fault& fault) const {
    if (fault.kind == Fault::kData) throw DataError(fault_text(path_, fault.what));
    if (fault.kind == Fault::kSystem)
      throw Error(fmt::format("{} must be readable; got {}; check its permissions, disk or network", path_,
                              fault.what));
  }

  std::string path_;
  std::size_t longest_;
  std::uintmax_t file_size_;
  std::unique_ptr<Rows> rows_;
  Row row_;
  std::size_t taken_ = 0;  // bytes of its text already returned
  bool in_row_ = false;    // its line end has not been returned yet
};

}  // namespace

std::unique_ptr<ByteReader> open(const std::filesystem::path& path, const Columns& columns,
                                 std::size_t longest) {
  return std::make_unique<Reader>(path, columns, longest);
}

}  // namespace colonnade::corpus::parquet
