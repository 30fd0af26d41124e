// Appended keys and values equal their concatenation, also when the capacity grows.
#include "colonnade/tensor/kv_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace colonnade::tensor {
namespace {

TEST(KeyValueCache, EqualsTheConcatenationOfAllAppends) {
  KeyValueCache cache;
  std::vector<at::Tensor> keys, values;
  std::int64_t total = 0;
  for (const std::int64_t tokens : {5, 58, 1, 1, 70, 200, 1}) {
    keys.push_back(at::rand({2, 3, tokens, 4}));
    values.push_back(at::rand({2, 3, tokens, 4}));
    const auto [k, v] = cache.append(0, keys.back(), values.back());
    const auto [k1, v1] = cache.append(1, values.back(), keys.back());
    EXPECT_TRUE(at::equal(k, at::cat(keys, 2))) << total;
    EXPECT_TRUE(at::equal(v, at::cat(values, 2))) << total;
    EXPECT_TRUE(at::equal(k1, v) && at::equal(v1, k)) << "layers must have separate entries";
    EXPECT_EQ(cache.length(), total) << "length must not change before advance()";
    cache.advance(tokens);
    total += tokens;
  }
  EXPECT_EQ(cache.length(), total);
}

}  // namespace
}  // namespace colonnade::tensor
