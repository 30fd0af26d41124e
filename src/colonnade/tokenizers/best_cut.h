// The best cut of a text into pieces with scores, found from left to right: the search of unigram models.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace colonnade::tokenizers {

/// Scores are added from left to right in Score's precision; of equally good cuts the first offered wins.
/// Memory: 8 bytes for each byte since the last place that no piece spans.
template <typename Score>
class BestCut {
 public:
  /// A piece of `length` bytes from the place that is searched on, with the score of the cut to its end.
  void offer(std::size_t length, Score score, std::int32_t id) {
    if (head_ + length >= scores_.size()) {
      scores_.resize(head_ + length + 1);
      lasts_.resize(at_ - base_ + length + 1);
    }
    Last& last = lasts_[at_ - base_ + length];
    if (last.length != 0 && score <= scores_[head_ + length]) return;
    scores_[head_ + length] = score;
    last = {static_cast<std::uint32_t>(length), id};
  }

  /// Cuts a text of `size` bytes. extend(at, score) offers the pieces that begin at a place and returns the
  /// bytes of its character, to whose end it must offer one; take(begin, length, id) gets the pieces of the
  /// best cut in order.
  template <typename Extend, typename Take>
  void run(std::size_t size, Extend&& extend, Take&& take) {
    constexpr std::size_t kWord = 64, kPassed = 4096;
    scores_.reserve(std::min(size, kWord) + 1);
    lasts_.reserve(std::min(size, kWord) + 1);
    scores_.assign(1, Score{});
    lasts_.assign(1, {});
    for (base_ = at_ = head_ = 0; at_ < size;) {
      if (scores_.size() == head_ + 1 && at_ > base_) give(take);
      const std::size_t step = extend(at_, scores_[head_]);
      at_ += step;
      head_ += step;
      if (head_ < kPassed) continue;
      scores_.erase(scores_.begin(), scores_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    give(take);
  }

 private:
  /// The last piece of the best cut to a place; length 0: none ends there.
  struct Last {
    std::uint32_t length = 0;
    std::int32_t id = 0;
  };

  /// Gives the pieces from base_ to at_, which becomes the new base. Turns the chain round in its place: each
  /// entry then says which piece begins there.
  template <typename Take>
  void give(Take&& take) {
    std::size_t end = at_ - base_;
    for (Last last = lasts_[end]; end > 0;) {
      end -= last.length;
      std::swap(last, lasts_[end]);
    }
    for (std::size_t begin = 0; begin < at_ - base_; begin += lasts_[begin].length)
      take(base_ + begin, std::size_t{lasts_[begin].length}, lasts_[begin].id);
    lasts_.assign(1, {});
    base_ = at_;
  }

  std::size_t base_ = 0, at_ = 0;
  std::size_t head_ = 0;       // what is passed of scores_
  std::vector<Score> scores_;  // then of the places from at_ on
  std::vector<Last> lasts_;    // of the places from base_ on
};

}  // namespace colonnade::tokenizers
