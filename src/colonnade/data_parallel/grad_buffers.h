// Flat gradient and parameter buffers in buckets: gradients are reduced over the data-parallel ranks during
// the backward pass, parameters are all-gathered during the next forward pass. Source: Megatron's
// core/distributed/param_and_grad_buffer.py; Li et al. 2020 (buckets).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/config/dtypes.h"
#include "colonnade/data_parallel/grad_reduce.h"
#include "colonnade/data_parallel/tied_embeddings.h"
#include "colonnade/data_parallel/unsharded_buffer.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/tensor/block.h"

namespace colonnade::data_parallel {

/// FSDP units: a unit is a block, whose parameters are gathered together.
struct Units {
  /// Units that read each parameter, ascending, its owner first.
  std::unordered_map<const tensor::Parameter*, std::vector<int>> readers;
  std::unordered_map<const tensor::Block*, int> blocks;  ///< blocks that hold or read parameters
};

/// Units of all stages' blocks, in forward order.
Units units_of(const std::vector<tensor::Stage*>& stages);

struct Options {
  config::Dtypes dtypes = {};  ///< used: parameter, main_gradient, gradient_wire, parameter_wire
  std::int64_t bucket_elements = 40'000'000;                 ///< minimum size at which a bucket is closed
  std::int64_t bucket_alignment = layout::kBucketAlignment;  ///< bucket lengths are multiples of it
  bool overlap_grad_reduce = false;   ///< reduce a bucket as soon as its last gradient is ready
  bool overlap_param_gather = false;  ///< gather in the background, wait before each block
  /// State of which each rank holds 1/size of every bucket (ZeRO stage).
  layout::Sharding sharding = layout::Sharding::kNone;
  bool reshard_after_forward = true;  ///< free unsharded parameters between forward and backward
  /// --outer-dp-sharding-strategy optim: optimizer instances share the update of their shards.
  bool shard_outer = false;
  bool reduce_by_all_to_all = false;  ///< GradReduce::all_to_all, of reductions over data-parallel replicas
  /// Layout-independent summation order over micro-batches and replicas; needs kGradients or above.
  bool deterministic = false;
  bool records_norms = false;        ///< local norm of every bucket before its reduction (take_norms)
  bool defers_weight_grads = false;  ///< some backward passes defer weight gradients (zero-bubble schedules)
  bool pairs_passes = false;         ///< a forward pass may run during a backward pass; up to kGradients
  Units units = {};                  ///< needed from kGradients up; numbered in forward order
  at::Device device = at::kCPU;      ///< of a rank without parameters
};

/// Data-parallel replicas on two levels (--num-distributed-optimizer-instances): `inner` ranks of one
/// distributed-optimizer instance share sharded state; `outer` ranks at the same position of all instances
/// hold the same shard (one rank without instances).
struct ReplicaGroups {
  ReplicaGroups(comm::Group inner_group = {},
                comm::Group outer_group = {})  // NOLINT(google-explicit-constructor)
      : inner(std::move(inner_group)), outer(std::move(outer_group)) {}
  comm::Group inner, outer;
  [[nodiscard]] bool is_first() const { return inner.rank() == 0 && outer.rank() == 0; }
};

/// Groups over which gradients are reduced.
struct Groups {
  ReplicaGroups data;  ///< data-parallel replicas of dense parameters (dp x cp)
  comm::Group tensor;  ///< tp
  /// Pipeline stages that hold copies of a parameter (tied embeddings and the like); absent: one stage.
  std::map<layout::HeldBy, comm::Group> stages;
  ReplicaGroups expert_data;  ///< data-parallel replicas of experts (edp)

  [[nodiscard]] const ReplicaGroups& replicas(layout::ParamGroup group) const {
    return group == layout::ParamGroup::kDense ? data : expert_data;
  }
};

/// Shard [begin, end) of the flat layout that this rank updates.
struct OwnedShard {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  at::Tensor params, grads;
};

/// Elements [begin, begin + values.numel()) of a parameter's local part, flat.
struct LocalSlice {
  std::int64_t begin = 0;
  at::Tensor values;
  bool is_saver = false;  ///< this rank writes the elements to checkpoints, of all replicas that hold them
};

/// Adopts all parameters of a rank: values and gradients become views of flat buffers with the same layout
/// (layout::lay_out). The buffers of a pipeline stage without parameters are empty.
///
/// With R inner replicas and n elements in a bucket, of which a parameter has e bytes, a main gradient g and
/// a gradient on the wire w, by sharding (ZeRO 0 to 3):
///
///                  bytes held between uses      bytes sent per step with M micro-batches, ring algorithms
///     kNone        n e + n g                    2 n w (R-1)/R
///     kOptimizer   n e + n g                    (n w + n e) (R-1)/R
///     kGradients   n e + n g/R                  (n w M + n e) (R-1)/R
///     kParameters  n e/R + n g/R                (n w + 2 n e) M (R-1)/R
///
/// With N optimizer instances the rank's shard of the sums, n/R elements (n with kNone), is all-reduced over
/// the outer group once a step, after the inner reductions: 2 n w/R (N-1)/N sent. With shard_outer each
/// instance keeps and updates 1/N of it: n w/R (N-1)/N sent, and n e/R (N-1)/N for the parameter all-gather,
/// which starts with the outer group. Source: Megatron's partial distributed optimizer and hybrid FSDP; Zhao
/// et al. 2023, section 3.2.2.
///
/// If the dtypes of main gradients and of the wire differ, a copy rounded once before each reduction is sent,
/// and the result is added in the dtype of main gradients. Extra reductions and sums over micro-batches stay
/// in the latter. Where buckets are reduced once a step, only one copy exists at a time. Not with
/// deterministic.
///
/// From kGradients up a bucket belongs to one unit (a block). Unsharded gradients exist from the begin of the
/// unit's backward pass until its last gradient; then they are reduce-scattered and added to the rank's
/// shard. With kParameters unsharded values exist in the unit's forward pass, and from the begin of its
/// backward pass until its last gradient; no one reads them in between, since all readers of a parameter run
/// within a pass of its block. Storage is freed and reattached under the same tensors (UnshardedBuffer), so
/// values that autograd saved stay valid. With overlap_param_gather the next unit is gathered during the
/// current one's computation, with overlap_grad_reduce the previous unit's gradients are reduced during it:
/// at most two units are unsharded. Where a forward pass may run during a backward pass (pairs_passes), it
/// leaves the gradients of that pass alone, which then stay until the next unit's backward pass. Without
/// reshard_after_forward all units stay unsharded from a forward pass to the next backward pass, and n e
/// instead of 2 n e is sent for them. Sums over micro-batches and ranks are taken in another order than with
/// kOptimizer, unless there is one micro-batch. Source:
/// Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP); Megatron's core/distributed/fsdp.
///
/// A table read by several blocks (tied embeddings, multi-token prediction) has a bucket of its own that
/// belongs to all readers: it is gathered while any reader runs, and each reader's gradient is
/// reduce-scattered separately. If a backward pass defers weight gradients (zero-bubble schedules), these lie
/// in buckets of their own: their values are unsharded in that pass, and their gradients have memory then and
/// while they are computed.
///
/// deterministic: with the micro-batches of all replicas numbered m = k R + r (k within a replica, r the
/// replica), every gradient is the sum over m in one binary tree: 2i with 2i + 1, the sum of these with that
/// of the next two, and so on, the remainder last. ReplicaCounts all-to-all the shards of each micro-batch
/// and add them in this order; a sum of 2^i micro-batches waits for the next one of its size,
/// layout::pending_partial_sums() at a time. With R a power of two the bits are the same for every R and
/// every split into pipeline stages. Each reader's contributions to a shared table are summed separately, as
/// if each had a copy. The order differs from that without deterministic.
///
/// Gradients are sums of what the ranks accumulated; the caller folds the weight 1 / (micro-batches *
/// replicas) into the loss. Parameters whose gradients are partial over other axes (ParamSpec::partial:
/// norms with sequence parallelism, key-value heads held by several ranks, tied embeddings) lie in buckets of
/// their own, which get an extra reduction over those axes after that over the replicas, one call per bucket:
/// all holders receive one result, so copies stay bitwise equal. Key-value heads shared by several ranks are
/// only some rows of a parameter: with sharded gradients these are reduced while unsharded, once a
/// micro-batch.
class GradBuffers {
 public:
  /// `chunks[c]`: parameters of model chunk c in forward order, all in options.dtypes.parameter.
  GradBuffers(const std::vector<std::vector<tensor::Parameter*>>& chunks, Groups groups, Options options);

  /// Resets all gradients.
  void start_step();
  /// Marks the next backward pass of model chunk c as the last of this step: complete buckets are reduced.
  void mark_last_microbatch(int chunk);
  /// Begins deferred weight gradients of a micro-batch.
  void begin_weight_grads();
  /// Begins the deferred weight gradient of `parameter`.
  void begin_weight_grad(const tensor::Parameter& parameter);
  /// Completes the reductions of all gradients that this rank needs: all of them, or its shards.
  void finish();

  /// With records_norms: the name of each bucket reduced since the last call, and the L2 norm of this rank's
  /// own gradients in it, a tensor of one element. With sharded gradients once per micro-batch.
  std::vector<std::pair<std::string, at::Tensor>> take_norms() { return std::exchange(norms_, {}); }

  /// Installs forward and backward hooks on the stage's blocks that wait for, gather and free parameters.
  void attach(tensor::Stage& stage);

  /// All-gathers `params` after the optimizer has updated each rank's shards. With overlap_param_gather
  /// returns at once. Sharded parameters are gathered when used.
  void gather_params();
  /// Part of a parameter that this rank holds between steps, to read or write values then. Parameters outside
  /// these buffers are unsharded.
  [[nodiscard]] LocalSlice local_slice(const tensor::Parameter& parameter);
  /// Blocks until the values of `parameters` may be read.
  void wait_for(const std::vector<tensor::Parameter*>& parameters);
  void wait_for(const tensor::Parameter& parameter);

  /// Flat buffers between steps: values in dtypes().parameter, gradients in dtypes().main_gradient.
  [[nodiscard]] const at::Tensor& params() const { return params_; }
  [[nodiscard]] const at::Tensor& grads() const { return grads_; }
  [[nodiscard]] const std::vector<OwnedShard>& owned() const { return owned_; }
  [[nodiscard]] const config::Dtypes& dtypes() const { return options_.dtypes; }
  [[nodiscard]] const Groups& groups() const { return groups_; }
  [[nodiscard]] bool deterministic() const { return options_.deterministic; }
  /// Whether the replicas of a group share the update of its parameters.
  [[nodiscard]] bool distributed(layout::ParamGroup group) const {
    return options_.sharding >= layout::Sharding::kOptimizer && groups_.replicas(group).inner.size() > 1;
  }
  /// Whether norms and checkpoints use this rank's shards: of replicas that update the same shard, the
  /// first's.
  [[nodiscard]] bool is_primary_replica(layout::ParamGroup group) const {
    const ReplicaGroups& replicas = groups_.replicas(group);
    return (distributed(group) || replicas.inner.rank() == 0) &&
           (options_.shard_outer || replicas.outer.rank() == 0);
  }

  struct Entry {
    tensor::Parameter* parameter;
    std::int64_t begin;  ///< offset in the flat buffers
  };
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  struct Bucket {
    layout::FlatBucket flat;
    std::vector<tensor::Parameter*> parameters;
    int pending_grads = 0;  ///< gradients missing before it may be reduced
    bool launched = false;
    comm::Work reduced, gathered;
    std::string name;
    at::Tensor stored_params, stored_grads;  ///< views of the flat buffers
    OwnedShard shard;                        ///< this rank's shard within the inner group
    // Only if sharded over the inner group:
    bool shards_params = false, shards_grads = false;
    UnshardedBuffer params, grads;
    at::Tensor incoming;     ///< destination of `gathered`
    bool has_sum = false;    ///< the shard holds the sum of earlier micro-batches
    std::vector<int> units;  ///< units that read it
    std::size_t reader = 0;  ///< index in `units` of the reader in its backward pass
    /// Deterministic, by reader: [i] is a waiting sum of 2^i micro-batches; undefined: none.
    std::vector<std::vector<at::Tensor>> sums;
  };
  /// Gradient reduce-scatter in flight; deterministic: an all-to-all that receives all replicas' addends.
  struct PendingScatter {
    std::size_t bucket = 0, reader = 0;
    at::Tensor part;
    comm::Work work;
  };

  void add_buckets(const layout::FlatLayout& layout,
                   const std::vector<std::vector<tensor::Parameter*>>& chunks);
  void allocate_buffers();
  void move_parameters(const Bucket& bucket, const at::Tensor& params, const at::Tensor& grads);
  void on_ready(std::size_t bucket);
  void launch(std::size_t bucket);
  /// reduce_over() with dtype and algorithm of the options.
  [[nodiscard]] comm::Work reduce(const comm::Group& group, const at::Tensor& all, const at::Tensor& needed,
                                  const std::string& name) const;
  /// All-gathers `part` of the parameters into `all`, in dtypes().parameter_wire.
  [[nodiscard]] comm::Work gather(const comm::Group& group, const at::Tensor& all, const at::Tensor& part,
                                  const std::string& name) const;
  void reduce_outer(std::size_t bucket);
  void wait_for_previous_copy(std::size_t bucket);
  void reduce_extra(std::size_t bucket);
  [[nodiscard]] std::vector<TiedGradient> tied_gradients() const;

  [[nodiscard]] int unit_of(const tensor::Block& block) const;  ///< -1: reads no parameters
  void start_gather(int unit);
  void unshard(int unit);  ///< completes the gather of the unit's values
  void reshard(int unit);
  void begin_backward(int unit);
  void allocate_grads(std::size_t bucket, int unit);
  void end_backward();  ///< of unit `backward_`
  void start_scatter(std::size_t bucket);
  void finish_scatter();                      ///< adds the scattered gradients to the shard
  void add_waiting_sums(std::size_t bucket);  ///< deterministic: adds all waiting sums into the shard

  /// Instances that share the update of a shard.
  [[nodiscard]] comm::Group update_group(layout::ParamGroup group) const {
    return options_.shard_outer ? groups_.replicas(group).outer : comm::Group();
  }
  [[nodiscard]] std::int64_t length(const Bucket& bucket) const {
    return bucket.flat.end - bucket.flat.begin;
  }
  [[nodiscard]] std::int64_t stored_numel(const Bucket& bucket, bool sharded) const;

  Groups groups_;
  Options options_;
  std::vector<Entry> entries_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<std::size_t>> buckets_of_unit_;
  std::unordered_map<const tensor::Parameter*, std::size_t> bucket_of_;
  std::vector<OwnedShard> owned_;
  std::optional<PendingScatter> pending_;
  int backward_ = -1;                          ///< unit in its backward pass; -1: none
  std::optional<std::size_t> copy_in_flight_;  ///< bucket whose reduction began last
  at::Tensor params_, grads_;
  std::vector<bool> is_last_microbatch_;
  std::vector<std::pair<std::string, at::Tensor>> norms_;
};

}  // namespace colonnade::data_parallel
