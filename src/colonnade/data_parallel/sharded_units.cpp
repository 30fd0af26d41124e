// Fully sharded data parallelism: hooks at the boundaries of blocks. See grad_buffers.h.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/data_parallel/local_norm.h"
#include "colonnade/data_parallel/partial_sums.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::data_parallel {
namespace {

/// Binary-tree sum of consecutive addends of `length`: neighbours first, then neighbouring sums. Overwrites
/// `addends`; the result has a storage of its own.
at::Tensor tree_sum(const at::Tensor& addends, std::int64_t length) {
  const std::int64_t count = length > 0 ? addends.numel() / length : 1;
  const auto at = [&](std::int64_t i) { return addends.narrow(0, i * length, length); };
  for (std::int64_t apart = 1; apart < count; apart *= 2)
    for (std::int64_t i = 0; i + apart < count; i += 2 * apart) at(i).add_(at(i + apart));
  return count == 1 ? addends : at(0).clone();
}

/// Adds a micro-batch's sum like incrementing a binary counter: sums[i] covers 2^i micro-batches.
void add_micro_batch_sum(std::vector<at::Tensor>& sums, at::Tensor sum) {
  std::size_t i = 0;
  for (; i < sums.size() && sums[i].defined(); ++i) {
    sum.add_(sums[i]);
    sums[i].reset();
  }
  if (i == sums.size()) sums.emplace_back();
  sums[i] = std::move(sum);
}

}  // namespace

Units units_of(const std::vector<tensor::Stage*>& stages) {
  Units units;
  int unit = 0;
  for (const tensor::Stage* stage : stages)
    for (const auto& block : stage->blocks) {
      const auto own = block->parameters(), others = block->shared_parameters();
      for (const tensor::Parameter* parameter : own) units.readers[parameter] = {unit};
      for (const tensor::Parameter* parameter : others)
        if (auto& readers = units.readers.at(parameter); readers.back() != unit) readers.push_back(unit);
      if (!own.empty() || !others.empty()) units.blocks[block.get()] = unit;
      ++unit;
    }
  return units;
}

void GradBuffers::attach(tensor::Stage& stage) {
  if (options_.sharding < layout::Sharding::kGradients) {
    if (options_.overlap_param_gather)
      stage.before_forward = [this](tensor::Block& block) { wait_for(block.parameters()); };
    return;
  }
  int first = -1, last = -1;
  for (const auto& block : stage.blocks) {
    const int unit = unit_of(*block);
    if (first < 0) first = unit;
    last = std::max(last, unit);
  }
  stage.before_forward = [this, last](tensor::Block& block) {
    const int unit = unit_of(block);
    if (!options_.pairs_passes) {
      end_backward();
      finish_scatter();  // from the pass before: the memory plan allows for one bucket besides two units
    }
    unshard(unit);
    if (options_.overlap_param_gather && unit >= 0 && unit < last) start_gather(unit + 1);
  };
  stage.after_forward = [this, first, last](tensor::Block& block, const at::Tensor&, const at::Tensor& y) {
    const int unit = unit_of(block);
    const bool needs_backward = unit >= 0 && at::GradMode::is_enabled() && y.requires_grad();
    if (!needs_backward || options_.reshard_after_forward) reshard(unit);
    if (!needs_backward) return;
    y.register_hook([this, unit, first, last](const at::Tensor&) {
      end_backward();
      if (unit == last) finish_scatter();
      begin_backward(unit);
      if (options_.overlap_param_gather && unit > first) start_gather(unit - 1);
    });
  };
}

int GradBuffers::unit_of(const tensor::Block& block) const {
  const auto found = options_.units.blocks.find(&block);
  return found == options_.units.blocks.end() ? -1 : found->second;
}

void GradBuffers::start_gather(int unit) {
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)]) {
    Bucket& bucket = buckets_[index];
    if (!bucket.shards_params || bucket.params.has_storage() || bucket.incoming.defined()) continue;
    bucket.gathered.wait();  // the outer gather of its shard
    bucket.incoming = bucket.params.empty();
    bucket.gathered = gather(groups_.replicas(bucket.flat.param_group).inner, bucket.incoming,
                             bucket.shard.params, bucket.name + " / parameters");
  }
}

void GradBuffers::unshard(int unit) {
  if (unit < 0) return;
  start_gather(unit);
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)]) {
    Bucket& bucket = buckets_[index];
    bucket.gathered.wait();
    if (!bucket.incoming.defined()) continue;
    bucket.params.set_storage(bucket.incoming);
    bucket.incoming.reset();
  }
}

void GradBuffers::reshard(int unit) {
  if (unit < 0) return;
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)])
    buckets_[index].params.release();
}

void GradBuffers::begin_backward(int unit) {
  unshard(unit);
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)])
    allocate_grads(index, unit);
}

void GradBuffers::begin_weight_grads() {
  end_backward();
  finish_scatter();
}

void GradBuffers::begin_weight_grad(const tensor::Parameter& parameter) {
  const std::size_t index = bucket_of_.at(&parameter);
  const int unit = buckets_[index].units.back();  // a shared table's last reader is the one with a GEMM
  if (unit != backward_) end_backward();
  allocate_grads(index, unit);
}

/// Allocates memory for the gradients of this unit's backward pass.
void GradBuffers::allocate_grads(std::size_t index, int unit) {
  Bucket& bucket = buckets_[index];
  if (!bucket.shards_grads) return;
  backward_ = unit;
  if (pending_ && pending_->bucket == index) finish_scatter();  // of its previous gradients
  if (bucket.grads.has_storage()) return;
  bucket.grads.set_storage(bucket.grads.empty());
  bucket.pending_grads = static_cast<int>(bucket.parameters.size());
  bucket.reader = static_cast<std::size_t>(std::ranges::find(bucket.units, unit) - bucket.units.begin());
}

/// Ends buckets that did not complete: tables with another reader, parameters that were unused or deferred
/// their gradients.
void GradBuffers::end_backward() {
  if (backward_ < 0) return;
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(std::exchange(backward_, -1))]) {
    Bucket& bucket = buckets_[index];
    if (bucket.shards_grads && std::ranges::any_of(bucket.parameters, &tensor::Parameter::has_grad))
      start_scatter(index);
    else if (!pending_ || pending_->bucket != index)
      bucket.grads.release();
    bucket.params.release();
  }
}

/// Reduce-scatters a bucket after the last use of its parameters in the unit.
void GradBuffers::start_scatter(std::size_t index) {
  Bucket& bucket = buckets_[index];
  for (tensor::Parameter* parameter : bucket.parameters)
    if (!parameter->has_grad()) parameter->main_grad_for_add();  // unused parameter: zero gradient
  if (bucket.flat.reduction == layout::ExtraReduction::kSharedRows)
    all_reduce_shared_rows(bucket.parameters, groups_.tensor, bucket.name + " / partial");
  for (tensor::Parameter* parameter : bucket.parameters) parameter->zero_grad();
  bucket.pending_grads = static_cast<int>(bucket.parameters.size());
  bucket.params.release();
  finish_scatter();
  if (options_.records_norms) norms_.emplace_back(bucket.name, local_norm(bucket.parameters));
  const comm::Group& replicas = groups_.replicas(bucket.flat.param_group).inner;
  if (options_.deterministic) {
    pending_.emplace(PendingScatter{index, bucket.reader, at::empty_like(bucket.grads.tensor()), {}});
    pending_->work = replicas.all_to_all(pending_->part, bucket.grads.tensor(), bucket.name);
  } else {
    at::Tensor all = bucket.grads.tensor();
    if (dtypes().rounds_gradients()) {
      all = all.to(tensor::scalar_type(dtypes().gradient_wire));
      bucket.grads.release();
    }
    pending_.emplace(PendingScatter{index, bucket.reader, at::empty_like(bucket.shard.grads), {}});
    pending_->work = reduce(replicas, all, pending_->part, bucket.name);
  }
  if (!options_.overlap_grad_reduce) finish_scatter();
}

void GradBuffers::finish_scatter() {
  if (!pending_) return;
  pending_->work.wait();
  Bucket& bucket = buckets_[pending_->bucket];
  const at::Tensor& own = bucket.shard.grads;
  const at::NoGradGuard no_grad;
  if (options_.deterministic)
    add_micro_batch_sum(bucket.sums[pending_->reader], tree_sum(pending_->part, own.numel()));
  else if (bucket.has_sum)
    own.add_(pending_->part);
  else
    own.copy_(pending_->part);
  bucket.has_sum = true;
  bucket.grads.release();
  pending_.reset();
}

void GradBuffers::add_waiting_sums(std::size_t index) {
  const at::NoGradGuard no_grad;
  const auto add = [](at::Tensor& all, at::Tensor sum) {
    if (sum.defined()) all = all.defined() ? all.add_(sum) : std::move(sum);
  };
  at::Tensor all;
  for (std::vector<at::Tensor>& waiting : buckets_[index].sums) {
    at::Tensor of_reader;
    for (at::Tensor& sum : waiting) add(of_reader, std::exchange(sum, {}));
    add(all, std::move(of_reader));
  }
  if (all.defined()) buckets_[index].shard.grads.copy_(all);
}

LocalSlice GradBuffers::local_slice(const tensor::Parameter& parameter) {
  const auto found = bucket_of_.find(&parameter);
  const std::int64_t numel = parameter.value.numel();
  const ReplicaGroups& replicas = groups_.replicas(parameter.spec.param_group);
  wait_for(parameter);
  if (found == bucket_of_.end() || !buckets_[found->second].shards_params)
    return {0, parameter.value.detach().view(-1), replicas.is_first()};
  const OwnedShard& part = buckets_[found->second].shard;
  const bool saves = replicas.outer.rank() == 0;
  const std::int64_t begin = std::ranges::find(entries_, &parameter, &Entry::parameter)->begin;
  const std::int64_t from = std::max(part.begin, begin), to = std::min(part.end, begin + numel);
  if (from >= to) return {0, part.params.narrow(0, 0, 0), saves};
  return {from - begin, part.params.narrow(0, from - part.begin, to - from), saves};
}

}  // namespace colonnade::data_parallel
