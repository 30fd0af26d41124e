// NumPy's .npy files (version 1.0, little-endian, C order) of the integer types used in index files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::data {

enum class IntType : std::uint8_t { kInt16, kInt32, kInt64, kUint32 };

template <typename T>
constexpr IntType int_type_of() {
  if constexpr (sizeof(T) == 2) return IntType::kInt16;
  if constexpr (sizeof(T) == 8) return IntType::kInt64;
  return static_cast<T>(-1) < 0 ? IntType::kInt32 : IntType::kUint32;
}

/// Memory for a large array, in huge pages where available, which makes filling it four times as fast. Throws
/// std::bad_alloc.
void* allocate_array(std::size_t bytes);
void free_array(void* array, std::size_t bytes) noexcept;

/// Allocator for large arrays whose elements stay uninitialized until they are set.
template <typename T>
struct UninitializedAllocator {
  using value_type = T;
  UninitializedAllocator() = default;
  template <typename U>
  explicit(false) UninitializedAllocator(const UninitializedAllocator<U>&) {}
  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(allocate_array(count * sizeof(T)));
  }
  void deallocate(T* array, std::size_t count) noexcept { free_array(array, count * sizeof(T)); }
  template <typename U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <typename U, typename... Values>
  void construct(U* at, Values&&... values) {
    ::new (static_cast<void*>(at)) U(std::forward<Values>(values)...);
  }
  friend bool operator==(UninitializedAllocator, UninitializedAllocator) { return true; }
};

/// A vector for large arrays: `LargeVector<T>(n)` holds n uninitialized values.
template <typename T>
using LargeVector = std::vector<T, UninitializedAllocator<T>>;

/// A matrix of `rows` x `cols` integers (a vector if `cols` is 1), in memory or mapped from a file. Copies
/// share the storage, which is immutable.
class IntArray {
 public:
  IntArray() = default;

  template <typename T, typename Memory>
  explicit IntArray(std::vector<T, Memory> values, std::int64_t cols = 1)
      : type_(int_type_of<T>()), rows_(static_cast<std::int64_t>(values.size()) / cols), cols_(cols) {
    auto kept = std::make_shared<const std::vector<T, Memory>>(std::move(values));
    bytes_ = std::as_bytes(std::span(*kept));
    owner_ = std::move(kept);
  }

  /// Maps a .npy file. Throws DataError if its format is not supported or its size differs from the header.
  static IntArray map(const std::filesystem::path& path);

  /// Writes a .npy file and syncs it to disk. Throws Error.
  void save(const std::filesystem::path& path) const;

  [[nodiscard]] IntType type() const { return type_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }
  [[nodiscard]] std::int64_t size() const { return rows_ * cols_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  /// Element `i` in C order. Not checked: 0 <= i < size().
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const {
    switch (type_) {
      case IntType::kInt16:
        return load<std::int16_t>(i);
      case IntType::kInt32:
        return load<std::int32_t>(i);
      case IntType::kInt64:
        return load<std::int64_t>(i);
      case IntType::kUint32:
        return load<std::uint32_t>(i);
    }
    return 0;
  }

 private:
  template <typename T>
  [[nodiscard]] std::int64_t load(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return static_cast<std::int64_t>(value);
  }

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
  IntType type_ = IntType::kInt32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 1;
};

/// Writes a one-dimensional .npy file incrementally, without knowing its length in advance.
class IntWriter {
 public:
  /// Throws Error if the file cannot be created.
  IntWriter(const std::filesystem::path& path, IntType type);

  /// Appends integers of the file's type.
  template <typename T>
  void append(std::span<const T> values) {
    write(int_type_of<T>(), std::as_bytes(values));
  }
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Writes the final header and syncs the file. Throws Error if a write failed.
  void close();

 private:
  void write(IntType type, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  IntType type_;
  std::int64_t size_ = 0;
  std::ofstream out_;
};

}  // namespace colonnade::data
