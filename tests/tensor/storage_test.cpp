// Releasing and restoring storage memory affects all tensors on it.
#include "colonnade/tensor/storage.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "colonnade/tensor/counting_allocator.h"

namespace colonnade::tensor {
namespace {

TEST(Storage, IsReleasedAndRestoredUnderViews) {
  count_cpu_memory();
  const at::Tensor x = at::arange(1024, at::kFloat);
  const at::Tensor row = x.view({4, 256})[1];
  const auto before = memory_use(at::kCPU).now;
  release(x.storage());
  EXPECT_EQ(memory_use(at::kCPU).now, before - 4096);
  EXPECT_EQ(x.storage().nbytes(), 0U);
  const at::Tensor source = at::arange(1024, at::kFloat).neg_();
  restore(x.storage(), source.storage());
  EXPECT_EQ(memory_use(at::kCPU).now, before);
  EXPECT_EQ(source.storage().nbytes(), 0U);
  EXPECT_EQ(x[5].item<float>(), -5);
  EXPECT_EQ(row[3].item<float>(), -259);
}

TEST(Storage, OfMetaTensorsUpdatesTheCount) {
  count_meta_memory();
  const at::Tensor x = at::empty({1000}, at::dtype(at::kFloat).device(at::kMeta));
  const auto before = memory_use(at::kMeta).now;
  release(x.storage());
  EXPECT_EQ(memory_use(at::kMeta).now, before - 4000);
  restore(x.storage(), at::empty({1000}, x.options()).storage());
  EXPECT_EQ(memory_use(at::kMeta).now, before);
}

}  // namespace
}  // namespace colonnade::tensor
