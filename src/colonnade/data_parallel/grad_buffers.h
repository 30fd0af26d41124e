// Flat gradient and parameter buffers in buckets: gradients are reduced over the data-parallel ranks
// while the backward pass still runs, parameters are gathered while the next forward pass begins.
// Source: Megatron's core/distributed/param_and_grad_buffer.py; Li et al. 2020 (buckets).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/data_parallel/travel.h"
#include "colonnade/data_parallel/whole.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/tensor/block.h"

namespace colonnade::data_parallel {

/// A unit is what is gathered together: a block.
struct Units {
  /// By parameter, those that read it, in ascending order, its holder first.
  std::unordered_map<const tensor::Parameter*, std::vector<int>> readers;
  std::unordered_map<const tensor::Block*, int> blocks;  ///< those that hold or read parameters
};

/// The blocks of all stages.
Units units_of(const std::vector<tensor::Stage*>& stages);

struct Options {
  std::int64_t bucket_elements = 40'000'000;                 ///< a bucket closes when it has at least so many
  std::int64_t bucket_alignment = layout::kBucketAlignment;  ///< its length is a multiple of it
  bool overlap_grad_reduce = false;   ///< reduce a bucket as soon as its last gradient is there
  bool overlap_param_gather = false;  ///< gather in the background, wait in front of each block
  /// Of what each rank holds 1/size of every bucket; what is updated it holds at least so.
  layout::Sharding sharding = layout::Sharding::kNone;
  bool reshard_after_forward = true;  ///< whole parameters are let go between forward and backward
  /// --outer-dp-sharding-strategy optim: the outer groups share the update of what they hold.
  bool cut_outer = false;
  Travel travel = {};  ///< over the replicas
  /// Sums over micro-batches and replicas are taken in one order for all layouts; with kGradients at least.
  bool deterministic = false;
  bool splits_backward = false;  ///< some backward passes leave the gradients of matrices for later
  Units units = {};              ///< from kGradients up; numbered in forward order
  at::TensorOptions empty = {};  ///< dtype and device of a rank without parameters
};

/// Replicas on two levels: `inner` share what is sharded, `outer` stand at the same place in all inner groups
/// and hold the same (--num-distributed-optimizer-instances; one rank without).
struct Levels {
  Levels(comm::Group inner_group = {}, comm::Group outer_group = {})  // NOLINT(google-explicit-constructor)
      : inner(std::move(inner_group)), outer(std::move(outer_group)) {}
  comm::Group inner, outer;
  [[nodiscard]] bool first() const { return inner.rank() == 0 && outer.rank() == 0; }
};

/// The groups a gradient may have to be summed over.
struct Groups {
  Levels data;         ///< replicas of dense parameters that see other samples (dp and cp)
  comm::Group tensor;  ///< tp
  /// The stages that hold a parameter together; none: one does.
  std::map<layout::HeldBy, comm::Group> stages;
  Levels expert_data;  ///< replicas of experts (edp)

  [[nodiscard]] const Levels& replicas(layout::Family family) const {
    return family == layout::Family::kDense ? data : expert_data;
  }
};

/// A stretch [begin, end) of the flat layout that this rank updates, and its elements.
struct Owned {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  at::Tensor params, grads;
};

/// The elements [begin, begin + values.numel()) of a parameter's local part, flat.
struct Here {
  std::int64_t begin = 0;
  at::Tensor values;
  bool saves = false;  ///< of the ranks that hold the same elements this one speaks for all
};

/// Takes all parameters of a rank: values and gradients become views of flat memory, laid out alike
/// (layout::lay_out). A stage of a pipeline may have none: its buffers are empty.
///
/// With R inner replicas and n elements of element size e in a bucket, by what is sharded (ZeRO 0 to 3):
///
///                  held between uses            sent per step with M micro-batches, ring algorithms
///     kNone        n e + 4 n                    2 x 4 n (R-1)/R
///     kOptimizer   n e + 4 n                    (4 n + n e) (R-1)/R
///     kGradients   n e + 4 n/R                  (4 n M + n e) (R-1)/R
///     kParameters  n e/R + 4 n/R                (4 n + 2 n e) M (R-1)/R
///
/// Over N outer groups the rank's stretch of the sums, n/R elements (n with kNone), is summed once a step
/// when the inner sums are there: 2 x 4 n/R (N-1)/N sent. With cut_outer each of them keeps and updates 1/N
/// of that: 4 n/R (N-1)/N, and n e/R (N-1)/N when parameters are gathered, over the outer groups first. With
/// travel.in bf16 the 4 of what is sent becomes 2: what travels is a copy, rounded once before each sum, and
/// what arrives is added in fp32; further sums and those of micro-batches are fp32 as without. Where buckets
/// are summed once a step one copy is there at a time. Not with deterministic. Source: Megatron's partial
/// distributed optimizer and hybrid FSDP; Zhao et al. 2023, section 3.2.2.
///
/// From kGradients up a bucket belongs to one unit (a block), and whole gradients are there from the begin of
/// the unit's backward pass until its last gradient: then they are scattered, and the sum over the replicas
/// is added to the rank's part. With kParameters whole values are there in the unit's forward pass, and again
/// from the begin of its backward pass until its last gradient; in between nobody reads them, since every
/// reader of a parameter is within a pass of its block. Memory comes and goes under the same tensors (Whole),
/// so a value that autograd has saved is found again where it was. With overlap_param_gather the next unit is
/// gathered while one computes, and with overlap_grad_reduce the last unit's gradients travel meanwhile: two
/// units are whole at most. Without reshard_after_forward whole values of all units stay from a forward pass
/// to the next backward pass, and n e instead of 2 n e are sent for them. Sums over micro-batches and ranks
/// are taken in another order than with kOptimizer, unless there is one micro-batch. Source: Rajbhandari et
/// al. 2020 (ZeRO); Zhao et al. 2023 (FSDP); Megatron's core/distributed/fsdp.
///
/// A table that several blocks read (tied embeddings, further tokens) has a bucket of its own that belongs to
/// all: it is whole while one computes, and what each adds to its gradient is scattered by itself. Where
/// a backward pass leaves the gradients of matrices for later (split schedules), these lie in buckets of
/// their own: their values are whole in the pass that leaves them, and there is memory for their gradients
/// then and while they are computed.
///
/// deterministic: with the micro-batches of all replicas numbered m = k R + r (k of a replica, r the
/// replica), every gradient is the sum over m in one binary tree: 2i with 2i + 1, their sum with the next
/// two, and so on, what is left over last. Of each micro-batch the replicas exchange their stretches and add
/// them in that order, and sums of 2^i micro-batches wait for their like, layout::waiting_sums() of
/// them: with R a power of two the same bits for every R, and for every cut by pipeline stages. What each of
/// its readers adds is summed so by itself, as if each had a copy. Another order than without.
///
/// Gradients are sums of what the ranks accumulated; the weights 1 / (micro-batches * replicas) are
/// folded into the loss by the caller. Parameters whose spec says that the gradient is partial over
/// further axes (norms under sequence parallelism, key-value heads held by several ranks, tied
/// embeddings) lie in buckets of their own, which are summed over those axes after the replicas, one
/// call for each bucket: every holder gets the result of one sum, so copies stay equal in every bit. Rows
/// of key-value heads that ranks share are some of a parameter's: where gradients are cut they are summed
/// before, while they are whole, once a micro-batch.
class GradBuffers {
 public:
  /// `chunks[c]`: the parameters of chunk c in forward order.
  GradBuffers(const std::vector<std::vector<tensor::Parameter*>>& chunks, Groups groups, Options options);

  /// Forgets all gradients.
  void start_step();
  /// The coming backward pass of chunk c is the last of this step: finished buckets may go.
  void arm(int chunk);
  /// Weight gradients that a backward pass left come next, micro-batch by micro-batch.
  void enter_weights();
  /// The next of them is of this parameter.
  void enter_product(const tensor::Parameter& parameter);
  /// Waits until every gradient this rank needs is summed: all of them, or the owned stretches.
  void finish();

  /// Calls back at the borders of the stage's blocks: parameters are waited for or gathered, and let go.
  void attach(tensor::Stage& stage);

  /// After the optimizer has written the owned stretches of `params`: every rank gets all of them.
  /// With overlap_param_gather returns at once. Sharded ones are gathered when they are used.
  void gather_params();
  /// What lies here of a parameter between steps, for those who read or write values then. Parameters that
  /// are not in these buffers are whole.
  [[nodiscard]] Here here(const tensor::Parameter& parameter);
  /// Blocks until the values of `parameters` may be read.
  void wait_for(const std::vector<tensor::Parameter*>& parameters);
  void wait_for(const tensor::Parameter& parameter);

  /// What lies between steps: flat, in the parameters' dtype, and fp32 (or float64).
  [[nodiscard]] const at::Tensor& params() const { return params_; }
  [[nodiscard]] const at::Tensor& grads() const { return grads_; }
  [[nodiscard]] const std::vector<Owned>& owned() const { return owned_; }
  [[nodiscard]] const Groups& groups() const { return groups_; }
  [[nodiscard]] bool deterministic() const { return options_.deterministic; }
  /// Whether the replicas of a family share the update of its parameters.
  [[nodiscard]] bool distributed(layout::Family family) const {
    return options_.sharding >= layout::Sharding::kOptimizer && groups_.replicas(family).inner.size() > 1;
  }
  /// Whether what this rank updates counts: among replicas that update the same, the first one's does.
  [[nodiscard]] bool counts(layout::Family family) const {
    const Levels& replicas = groups_.replicas(family);
    return (distributed(family) || replicas.inner.rank() == 0) &&
           (options_.cut_outer || replicas.outer.rank() == 0);
  }

  struct Entry {
    tensor::Parameter* parameter;
    std::int64_t begin;  ///< offset in the flat buffers
  };
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  struct Bucket {
    layout::FlatBucket place;
    std::vector<tensor::Parameter*> parameters;
    int missing = 0;  ///< gradients still to come before it may be reduced
    bool launched = false;
    comm::Work reduced, gathered;
    std::string name;
    at::Tensor held_params, held_grads;  ///< stretches of the flat memory
    Owned part;                          ///< what of them the inner replicas leave to this rank
    // Where the replicas share it:
    bool cuts_params = false, cuts_grads = false;
    Whole params, grads;
    at::Tensor arriving;     ///< memory that `gathered` fills
    bool summed = false;     ///< own gradients hold those of an earlier micro-batch
    std::vector<int> units;  ///< its readers
    std::size_t reader = 0;  ///< whose gradients are coming
    /// Deterministic, by reader: [i] of 2^i micro-batches, undefined where none waits.
    std::vector<std::vector<at::Tensor>> sums;
  };
  /// Gradients on their way to the parts: their sum, or those of all replicas one after the other.
  struct Flight {
    std::size_t bucket = 0, reader = 0;
    at::Tensor part;
    comm::Work work;
  };

  void adopt(const layout::FlatLayout& layout, const std::vector<std::vector<tensor::Parameter*>>& chunks);
  void move_into_buffers();
  void move_parameters(const Bucket& bucket, const at::Tensor& params, const at::Tensor& grads);
  void on_ready(std::size_t bucket);
  void launch(std::size_t bucket);
  void sum_outer(std::size_t bucket);
  void make_way(std::size_t bucket);
  void sum_further(std::size_t bucket);
  void sum_over_stages();

  [[nodiscard]] int unit_of(const tensor::Block& block) const;  ///< -1: reads no parameters
  void start_gather(int unit);
  void use(int unit);  ///< whole values from here on
  void let_go(int unit);
  void enter_backward(int unit);
  void give_gradients(std::size_t bucket, int unit);
  void leave_backward();  ///< of the unit that was last in it
  void scatter(std::size_t bucket);
  void land();                      ///< ends the flight
  void add_up(std::size_t bucket);  ///< what waits, into the rank's part

  /// Those who share the update of a part.
  [[nodiscard]] comm::Group sharers(layout::Family family) const {
    return options_.cut_outer ? groups_.replicas(family).outer : comm::Group();
  }
  [[nodiscard]] std::int64_t length(const Bucket& bucket) const {
    return bucket.place.end - bucket.place.begin;
  }
  [[nodiscard]] std::int64_t held(const Bucket& bucket, bool cut) const;

  Groups groups_;
  Options options_;
  std::vector<Entry> entries_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<std::size_t>> buckets_of_unit_;
  std::unordered_map<const tensor::Parameter*, std::size_t> bucket_of_;
  std::vector<Owned> owned_;
  std::optional<Flight> flight_;
  int backward_ = -1;                      ///< the unit whose gradients are coming
  std::optional<std::size_t> travelling_;  ///< the bucket whose sum began last
  at::Tensor params_, grads_;
  std::vector<bool> armed_;
};

}  // namespace colonnade::data_parallel
