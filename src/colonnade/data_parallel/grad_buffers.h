// Flat gradient and parameter buffers in buckets: gradients are reduced over the data-parallel ranks
// while the backward pass still runs, parameters are gathered while the next forward pass begins.
// Source: Megatron's core/distributed/param_and_grad_buffer.py; Li et al. 2020 (buckets).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/plan/buckets.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::data_parallel {

struct Options {
  std::int64_t bucket_elements = 40'000'000;  ///< a bucket closes when it has at least so many
  bool overlap_grad_reduce = false;           ///< reduce a bucket as soon as its last gradient is there
  bool overlap_param_gather = false;          ///< gather in the background, wait in front of each block
  bool distributed = false;                   ///< each rank owns and updates 1/size of every bucket
  at::TensorOptions empty = {};               ///< dtype and device of a rank without parameters
};

/// The groups a gradient may have to be summed over.
struct Groups {
  comm::Group data;         ///< replicas of dense parameters that see other samples (dp and cp)
  comm::Group tensor;       ///< tp
  comm::Group embedding;    ///< first and last stage, where tied embeddings live on both
  comm::Group expert_data;  ///< replicas of experts (edp)

  [[nodiscard]] const comm::Group& replicas(plan::Family family) const {
    return family == plan::Family::kDense ? data : expert_data;
  }
};

/// A stretch [begin, end) of the flat buffers that this rank updates.
struct Owned {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Takes all parameters of a rank: values and gradients become views of two flat buffers with equal
/// offsets (plan::lay_out). A stage of a pipeline may have none: its buffers are empty.
///
/// Gradients are sums of what the ranks accumulated; the weights 1 / (micro-batches * replicas) are
/// folded into the loss by the caller. Parameters whose spec says that the gradient is partial over
/// further axes (norms under sequence parallelism, key-value heads held by several ranks, tied
/// embeddings) lie in buckets of their own, which are summed over those axes after the replicas, one
/// call for each bucket: every holder gets the result of one sum, so copies stay equal in every bit.
class GradBuffers {
 public:
  /// `chunks[c]`: the parameters of chunk c in forward order. `tied`: the table (or its copy) of tied
  /// embeddings on this rank, or null.
  GradBuffers(const std::vector<std::vector<tensor::Parameter*>>& chunks, tensor::Parameter* tied,
              Groups groups, Options options);

  /// Forgets all gradients.
  void start_step();
  /// The coming backward pass of chunk c is the last of this step: finished buckets may go.
  void arm(int chunk);
  /// Waits until every gradient this rank needs is summed: all of them, or the owned stretches.
  void finish();

  /// After the optimizer has written the owned stretches of `params`: every rank gets all of them.
  /// With overlap_param_gather returns at once.
  void gather_params();
  /// Blocks until the values of `parameters` may be read.
  void wait_for(const std::vector<tensor::Parameter*>& parameters);

  [[nodiscard]] const at::Tensor& params() const { return params_; }  ///< flat, in the parameters' dtype
  [[nodiscard]] const at::Tensor& grads() const { return grads_; }    ///< flat fp32 (or float64)
  [[nodiscard]] const std::vector<Owned>& owned() const { return owned_; }
  [[nodiscard]] const Groups& groups() const { return groups_; }
  /// Whether the replicas of a family share the update of its parameters.
  [[nodiscard]] bool distributed(plan::Family family) const {
    return options_.distributed && groups_.replicas(family).size() > 1;
  }
  /// Whether what this rank updates counts: among replicas that update the same, the first one's does.
  [[nodiscard]] bool counts(plan::Family family) const {
    return distributed(family) || groups_.replicas(family).rank() == 0;
  }

  struct Entry {
    tensor::Parameter* parameter;
    std::int64_t begin;  ///< offset in the flat buffers
  };
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  struct Bucket {
    plan::FlatBucket place;
    std::vector<tensor::Parameter*> parameters;
    int missing = 0;  ///< gradients still to come before it may be reduced
    bool launched = false;
    comm::Work reduced, gathered;
    std::string name;
  };

  void adopt(const plan::FlatLayout& layout, const std::vector<std::vector<tensor::Parameter*>>& chunks);
  void add_owned(const plan::FlatBucket& place);
  void move_into_buffers(std::int64_t size);
  void on_ready(std::size_t bucket);
  void launch(Bucket& bucket);
  void sum_further(std::size_t bucket);
  [[nodiscard]] at::Tensor stretch(const at::Tensor& buffer, const Bucket& bucket) const;

  Groups groups_;
  Options options_;
  std::vector<Entry> entries_;
  std::vector<Bucket> buckets_;
  std::unordered_map<const tensor::Parameter*, std::size_t> bucket_of_;
  std::vector<Owned> owned_;
  at::Tensor params_, grads_;
  std::vector<bool> armed_;
};

}  // namespace colonnade::data_parallel
