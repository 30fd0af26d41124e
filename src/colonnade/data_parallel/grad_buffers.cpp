// See grad_buffers.h.
#include "colonnade/data_parallel/grad_buffers.h"

#include <ATen/ops/zeros.h>

#include "colonnade/base/error.h"
#include "colonnade/comm/trace_range.h"
#include "colonnade/data_parallel/local_norm.h"
#include "colonnade/data_parallel/partial_sums.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::data_parallel {
namespace {

using layout::ExtraReduction;

layout::FlatLayout lay_out(const std::vector<std::vector<tensor::Parameter*>>& chunks, const Groups& groups,
                           const Options& options) {
  std::vector<std::vector<layout::FlatParam>> flat(chunks.size());
  const bool by_unit = options.sharding >= layout::Sharding::kGradients;
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (const tensor::Parameter* p : chunks[c])
      flat[c].push_back({p->value.numel(), layout::extra_reduction(p->spec, p->shard, groups.tensor.size()),
                         p->spec.param_group, by_unit ? options.units.readers.at(p).front() : 0,
                         by_unit && options.defers_weight_grads && layout::can_defer_wgrad(p->spec),
                         p->spec.held_by});
  const auto parts = [&](const ReplicaGroups& replicas) {
    return replicas.inner.size() * (options.shard_outer ? replicas.outer.size() : 1);
  };
  return layout::lay_out(flat, options.bucket_elements, {parts(groups.data), parts(groups.expert_data)},
                         options.bucket_alignment);
}

/// Equal share of a shard that this member of `group` updates.
OwnedShard shard_of(const OwnedShard& all, const comm::Group& group) {
  const std::int64_t length = (all.end - all.begin) / group.size(), first = length * group.rank();
  return {all.begin + first, all.begin + first + length, all.params.narrow(0, first, length),
          all.grads.narrow(0, first, length)};
}

}  // namespace

GradBuffers::GradBuffers(const std::vector<std::vector<tensor::Parameter*>>& chunks, Groups groups,
                         Options options)
    : groups_(std::move(groups)), options_(std::move(options)), is_last_microbatch_(chunks.size(), false) {
  add_buckets(lay_out(chunks, groups_, options_), chunks);
  allocate_buffers();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (tensor::Parameter* parameter : buckets_[b].parameters) {
      bucket_of_[parameter] = b;
      parameter->on_grad_ready = [this, b] { on_ready(b); };
    }
  start_step();
}

void GradBuffers::add_buckets(const layout::FlatLayout& layout,
                              const std::vector<std::vector<tensor::Parameter*>>& chunks) {
  for (const layout::PlacedParam& e : layout.entries) entries_.push_back({chunks[e.chunk][e.index], e.begin});
  for (const layout::FlatBucket& flat : layout.buckets) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.flat = flat;
    for (std::size_t i = flat.first; i < flat.last; ++i) bucket.parameters.push_back(entries_[i].parameter);
    bucket.name = fmt::format("gradient bucket {} ({} ... {})", buckets_.size() - 1,
                              bucket.parameters.front()->spec.name, bucket.parameters.back()->spec.name);
    bucket.shards_grads = (distributed(flat.param_group) || options_.deterministic) &&
                          options_.sharding >= layout::Sharding::kGradients;
    bucket.shards_params =
        distributed(flat.param_group) && options_.sharding >= layout::Sharding::kParameters;
    const bool by_unit = options_.sharding >= layout::Sharding::kGradients;
    bucket.units = by_unit ? options_.units.readers.at(bucket.parameters.front()) : std::vector<int>{0};
    bucket.sums.resize(bucket.units.size());
    for (const int reader : bucket.units) {
      const auto unit = static_cast<std::size_t>(reader);
      if (buckets_of_unit_.size() <= unit) buckets_of_unit_.resize(unit + 1);
      buckets_of_unit_[unit].push_back(buckets_.size() - 1);
    }
  }
}

std::int64_t GradBuffers::stored_numel(const Bucket& bucket, bool sharded) const {
  return length(bucket) / (sharded ? groups_.replicas(bucket.flat.param_group).inner.size() : 1);
}

/// Allocates the flat buffers; values and gradients of parameters become views of them or of
/// UnshardedBuffers.
void GradBuffers::allocate_buffers() {
  std::int64_t params = 0, grads = 0;
  for (const Bucket& bucket : buckets_) {
    params += stored_numel(bucket, bucket.shards_params);
    grads += stored_numel(bucket, bucket.shards_grads);
  }
  const at::Device device = entries_.empty() ? options_.device : entries_.front().parameter->value.device();
  params_ = at::zeros({params}, tensor::options(dtypes().parameter, device));
  grads_ = at::zeros({grads}, tensor::options(dtypes().main_gradient, device));
  params = grads = 0;
  for (Bucket& bucket : buckets_) {
    const comm::Group& inner = groups_.replicas(bucket.flat.param_group).inner;
    const bool shared = distributed(bucket.flat.param_group);
    const std::int64_t part = length(bucket) / (shared ? inner.size() : 1);
    const std::int64_t first = shared ? part * inner.rank() : 0;
    bucket.stored_params = params_.narrow(0, params, stored_numel(bucket, bucket.shards_params));
    bucket.stored_grads = grads_.narrow(0, grads, stored_numel(bucket, bucket.shards_grads));
    bucket.shard = {bucket.flat.begin + first, bucket.flat.begin + first + part,
                    bucket.stored_params.narrow(0, bucket.shards_params ? 0 : first, part),
                    bucket.stored_grads.narrow(0, bucket.shards_grads ? 0 : first, part)};
    owned_.push_back(shard_of(bucket.shard, update_group(bucket.flat.param_group)));
    if (bucket.shards_params) bucket.params = UnshardedBuffer(length(bucket), params_.options());
    if (bucket.shards_grads) bucket.grads = UnshardedBuffer(length(bucket), grads_.options());
    move_parameters(bucket, bucket.shards_params ? bucket.params.tensor() : bucket.stored_params,
                    bucket.shards_grads ? bucket.grads.tensor() : bucket.stored_grads);
    if (bucket.shards_params) {
      bucket.shard.params.copy_(bucket.params.tensor().narrow(0, first, part));
      bucket.params.release();
    }
    bucket.grads.release();
    params += bucket.stored_params.numel();
    grads += bucket.stored_grads.numel();
  }
}

void GradBuffers::move_parameters(const Bucket& bucket, const at::Tensor& params, const at::Tensor& grads) {
  for (std::size_t i = bucket.flat.first; i < bucket.flat.last; ++i) {
    tensor::Parameter& p = *entries_[i].parameter;
    COL_CHECK(
        p.value.scalar_type() == params.scalar_type(),
        "{} must have the dtype of the run's parameters, {}; got {}; make it with layers::Context::make",
        p.spec.name, config::name(dtypes().parameter), c10::toString(p.value.scalar_type()));
    const std::int64_t begin = entries_[i].begin - bucket.flat.begin, n = p.value.numel();
    p.move_value_to(params.narrow(0, begin, n));
    p.move_grad_to(grads.narrow(0, begin, n));
  }
}

void GradBuffers::start_step() {
  for (const Entry& e : entries_) e.parameter->zero_grad();
  for (Bucket& bucket : buckets_) {
    bucket.pending_grads = static_cast<int>(bucket.parameters.size());
    bucket.launched = bucket.has_sum = false;
  }
  is_last_microbatch_.assign(is_last_microbatch_.size(), false);
}

void GradBuffers::mark_last_microbatch(int chunk) {
  is_last_microbatch_[static_cast<std::size_t>(chunk)] = true;
}

void GradBuffers::on_ready(std::size_t index) {
  Bucket& bucket = buckets_[index];
  if (bucket.shards_grads) {
    if (--bucket.pending_grads == 0) start_scatter(index);
    return;
  }
  if (!options_.overlap_grad_reduce || !is_last_microbatch_[static_cast<std::size_t>(bucket.flat.chunk)])
    return;
  // Each recomputed layer ends a backward pass, so tables read by many layers are complete only in finish().
  if (bucket.flat.held_by == layout::HeldBy::kEncoder || bucket.flat.held_by == layout::HeldBy::kDecoder)
    return;
  if (--bucket.pending_grads == 0) launch(index);
}

/// Reductions of copies in another dtype run one at a time, which bounds the memory of copies.
void GradBuffers::wait_for_previous_copy(std::size_t index) {
  if (!dtypes().rounds_gradients()) return;
  if (copy_in_flight_) buckets_[*copy_in_flight_].reduced.wait();
  copy_in_flight_ = index;
}

comm::Work GradBuffers::reduce(const comm::Group& group, const at::Tensor& all, const at::Tensor& needed,
                               const std::string& name) const {
  return reduce_over(group, all, needed,
                     {tensor::scalar_type(dtypes().gradient_wire), options_.reduce_by_all_to_all}, name);
}

comm::Work GradBuffers::gather(const comm::Group& group, const at::Tensor& all, const at::Tensor& part,
                               const std::string& name) const {
  COL_CHECK(
      dtypes().parameter_wire == dtypes().parameter,
      "{}: parameters must be gathered in their own dtype, {}; got {}; set Dtypes::parameter_wire to it",
      name, config::name(dtypes().parameter), config::name(dtypes().parameter_wire));
  return group.all_gather(all, part, name);
}

void GradBuffers::launch(std::size_t index) {
  Bucket& bucket = buckets_[index];
  for (tensor::Parameter* parameter : bucket.parameters)
    if (!parameter->has_grad()) parameter->main_grad_for_add();  // unused parameter: zero gradient
  bucket.launched = true;
  if (options_.records_norms) norms_.emplace_back(bucket.name, local_norm(bucket.parameters));
  wait_for_previous_copy(index);
  bucket.reduced = reduce(groups_.replicas(bucket.flat.param_group).inner, bucket.stored_grads,
                          bucket.shard.grads, bucket.name);
}

/// Reduces a bucket's inner sums over the outer group.
void GradBuffers::reduce_outer(std::size_t index) {
  Bucket& bucket = buckets_[index];
  wait_for_previous_copy(index);
  bucket.reduced = reduce(groups_.replicas(bucket.flat.param_group).outer, bucket.shard.grads,
                          owned_[index].grads, bucket.name + " / outer");
}

/// Extra reduction of this rank's shard over other axes; its peers there hold the same shard.
void GradBuffers::reduce_extra(std::size_t index) {
  const Bucket& bucket = buckets_[index];
  const std::string name = bucket.name + " / partial";
  const at::Tensor& needed = owned_[index].grads;
  switch (bucket.flat.reduction) {
    case ExtraReduction::kNone:
      return;
    case ExtraReduction::kTensor:
      return groups_.tensor.all_reduce(needed, name).wait();
    case ExtraReduction::kSharedRows:
      if (!bucket.shards_grads) all_reduce_shared_rows(bucket.parameters, groups_.tensor, name);
      return;
    case ExtraReduction::kStages:
      return;  // see tied_gradients()
  }
}

std::vector<TiedGradient> GradBuffers::tied_gradients() const {
  std::vector<TiedGradient> gradients;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (const layout::HeldBy held_by = buckets_[b].flat.held_by; held_by != layout::HeldBy::kOneStage)
      gradients.push_back({held_by, owned_[b].grads, buckets_[b].parameters.front()->spec.name});
  return gradients;
}

void GradBuffers::finish() {
  const comm::TraceRange range([] { return std::string("gradient sync"); });
  // Reduction order, the same for all buckets: (1) over the inner replicas, started in backward order (Li et
  // al. 2020), overlapped ones during the backward pass; (2) over the outer replicas (optimizer instances);
  // (3) over tp, for gradients that are partial there; (4) over the stages that share a parameter. Each step
  // starts from the result of the one before, so all holders of a parameter get the same bits.
  // Exception: key-value rows shared over tp are reduced before (1) if gradients are sharded.
  end_backward();
  finish_scatter();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (!buckets_[b].shards_grads && !buckets_[b].launched) launch(b);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].reduced.wait();
    add_waiting_sums(b);
    if (buckets_[b].shards_grads && !buckets_[b].has_sum) buckets_[b].shard.grads.zero_();
    reduce_outer(b);
  }
  for (Bucket& bucket : buckets_) bucket.reduced.wait();
  copy_in_flight_.reset();
  for (std::size_t b = 0; b < buckets_.size(); ++b) reduce_extra(b);
  all_reduce_over_stages(groups_.stages, tied_gradients());
}

void GradBuffers::gather_params() {
  // Buckets are in backward order; gather those first that the forward pass needs first.
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    Bucket& bucket = buckets_[b];
    bucket.params.release();  // stale values
    bucket.gathered = gather(update_group(bucket.flat.param_group), bucket.shard.params, owned_[b].params,
                             bucket.name + " / outer");
  }
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
    if (distributed(bucket->flat.param_group) && !bucket->shards_params) {
      bucket->gathered.wait();
      bucket->gathered = gather(groups_.replicas(bucket->flat.param_group).inner, bucket->stored_params,
                                bucket->shard.params, bucket->name);
    }
    if (!options_.overlap_param_gather) bucket->gathered.wait();
  }
}

void GradBuffers::wait_for(const std::vector<tensor::Parameter*>& parameters) {
  for (const tensor::Parameter* parameter : parameters) wait_for(*parameter);
}

void GradBuffers::wait_for(const tensor::Parameter& parameter) {
  const auto found = bucket_of_.find(&parameter);
  if (found != bucket_of_.end()) buckets_[found->second].gathered.wait();
}

}  // namespace colonnade::data_parallel
