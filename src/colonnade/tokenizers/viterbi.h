// Viterbi segmentation of a text into scored pieces: the search of unigram models.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace colonnade::tokenizers {

/// Scores are summed from left to right in Score's precision; of equal sums the first offered wins. Memory: 8
/// bytes for each byte since the last offset that no piece spans.
template <typename Score>
class ViterbiSegmenter {
 public:
  /// Offers a piece of `length` bytes at the current offset; `score` is that of the segmentation up to its
  /// end.
  void offer(std::size_t length, Score score, std::int32_t id) {
    if (head_ + length >= scores_.size()) {
      scores_.resize(head_ + length + 1);
      back_pointers_.resize(at_ - base_ + length + 1);
    }
    BackPointer& last = back_pointers_[at_ - base_ + length];
    if (last.length != 0 && score <= scores_[head_ + length]) return;
    scores_[head_ + length] = score;
    last = {static_cast<std::uint32_t>(length), id};
  }

  /// Segments a text of `size` bytes. extend(at, score) offers the pieces that start at `at` and returns the
  /// bytes of the character there, which one of these pieces must cover. take(begin, length, id) receives the
  /// pieces of the best segmentation in order.
  template <typename Extend, typename Take>
  void run(std::size_t size, Extend&& extend, Take&& take) {
    constexpr std::size_t kTypicalWord = 64, kCompactAt = 4096;
    scores_.reserve(std::min(size, kTypicalWord) + 1);
    back_pointers_.reserve(std::min(size, kTypicalWord) + 1);
    scores_.assign(1, Score{});
    back_pointers_.assign(1, {});
    for (base_ = at_ = head_ = 0; at_ < size;) {
      if (scores_.size() == head_ + 1 && at_ > base_) emit(take);
      const std::size_t step = extend(at_, scores_[head_]);
      at_ += step;
      head_ += step;
      if (head_ < kCompactAt) continue;
      scores_.erase(scores_.begin(), scores_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    emit(take);
  }

 private:
  /// The last piece of the best segmentation up to an offset; length 0 if no piece ends there.
  struct BackPointer {
    std::uint32_t length = 0;
    std::int32_t id = 0;
  };

  /// Passes the pieces from base_ to at_ to `take`; at_ becomes the new base. Reverses the chain of back
  /// pointers in place: each entry then holds the piece that starts there.
  template <typename Take>
  void emit(Take&& take) {
    std::size_t end = at_ - base_;
    for (BackPointer last = back_pointers_[end]; end > 0;) {
      end -= last.length;
      std::swap(last, back_pointers_[end]);
    }
    for (std::size_t begin = 0; begin < at_ - base_; begin += back_pointers_[begin].length)
      take(base_ + begin, std::size_t{back_pointers_[begin].length}, back_pointers_[begin].id);
    back_pointers_.assign(1, {});
    base_ = at_;
  }

  std::size_t base_ = 0, at_ = 0;
  std::size_t head_ = 0;                    // index of at_ in scores_
  std::vector<Score> scores_;               // by offset; those before head_ are no longer needed
  std::vector<BackPointer> back_pointers_;  // by offset from base_
};

}  // namespace colonnade::tokenizers
